// SPDX-License-Identifier: Apache-2.0
//
// PrivateDirectory: a new directory that only this user can enter. It is removed with its contents.
// The ranks of one host find each other through it, so no port is needed, and none can be taken.
#pragma once

#include "xylem/base/status.h"

#include <filesystem>

namespace xylem::tools {

class PrivateDirectory {
 public:
  /// Makes a directory in the place for temporary files (TMPDIR).
  static Result<PrivateDirectory> create();

  PrivateDirectory(PrivateDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit PrivateDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace xylem::tools
