// SPDX-License-Identifier: Apache-2.0
//
// ReportFile: a file whose contents are written as a whole. The new text is first written to
// another file in the same folder, which then replaces the old file. So a regular file keeps its
// contents until the new text is complete. Devices, pipes and links are written in place.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <string>
#include <string_view>
#include <utility>

namespace xylem::tools {

class ReportFile {
 public:
  /// Fails if `path` cannot be written. Does not change the contents of a file. Waits until a named
  /// pipe has a reader.
  static Result<ReportFile> open(const std::string& path);

  /// Writes the file. Call it once.
  Status write(std::string_view text);

 private:
  ReportFile(std::string path, UniqueFd in_place)
      : path_(std::move(path)), in_place_(std::move(in_place)) {}

  std::string path_;
  UniqueFd in_place_;  ///< The open file if it is written in place; otherwise empty.
};

}  // namespace xylem::tools
