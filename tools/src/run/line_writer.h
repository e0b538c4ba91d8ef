// SPDX-License-Identifier: Apache-2.0
//
// LineWriter: turns the output of one stream of one rank into whole lines with a common prefix. If
// each line is written with one call, streams are mixed only between lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xylem::tools {

class LineWriter {
 public:
  /// A longer line is broken here, so that a rank that never ends a line cannot fill the launcher's
  /// memory.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  explicit LineWriter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// The lines that `bytes` completes, each with prefix and line break. The rest is kept.
  std::string feed(std::string_view bytes);
  /// The last line, if it has no line break; one is added.
  std::string finish();

 private:
  void end_line(std::string& out);

  std::string prefix_;
  std::string line_;
};

}  // namespace xylem::tools
