// SPDX-License-Identifier: Apache-2.0
//
// ReportFile: a file that is written as a whole. A new text is first written to a file beside it,
// which then replaces it. So a regular file keeps its contents until the new text is complete.
// Devices, pipes and links are written in place.
#pragma once

#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <string>
#include <string_view>
#include <utility>

namespace xylem::tools {

class ReportFile {
 public:
  /// Fails if `path` cannot be written, and changes no file. Waits for the reader of a named pipe.
  static Result<ReportFile> open(const std::string& path);

  /// To be called once.
  Status write(std::string_view text);

 private:
  ReportFile(std::string path, UniqueFd in_place)
      : path_(std::move(path)), in_place_(std::move(in_place)) {}

  std::string path_;
  UniqueFd in_place_;  ///< The open file; empty if it is replaced.
};

}  // namespace xylem::tools
