// SPDX-License-Identifier: Apache-2.0
//
// A directory for the files of one test.
#pragma once

#include "xylem/base/check.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace xylem::test {

/// Makes a new directory. The destructor removes it with its contents.
class TemporaryDirectory {
 public:
  TemporaryDirectory() { XYLEM_CHECK(::mkdtemp(path_.data()) != nullptr, path_); }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// Writes a file, replacing an existing one, and returns its path. Creates the directories that
  /// `name` contains.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::trunc) << text;
    return path;
  }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "xylem-test-XXXXXX";
};

}  // namespace xylem::test
