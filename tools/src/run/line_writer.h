// SPDX-License-Identifier: Apache-2.0
//
// LineWriter: turns the output of one stream of one rank into whole lines with a common prefix. If
// each line is written by one call of write(), lines of different streams are not mixed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xylem::tools {

class LineWriter {
 public:
  /// A longer line is broken after this many bytes, so that a rank that never ends a line cannot
  /// fill the launcher's memory.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  explicit LineWriter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Returns the lines that `bytes` completes, each with prefix and line break. Keeps the bytes
  /// after the last line break for the next call.
  std::string feed(std::string_view bytes);
  /// Returns the last line, with a line break, if the stream did not end with a line break.
  std::string finish();

 private:
  void end_line(std::string& out);

  std::string prefix_;
  std::string line_;
};

}  // namespace xylem::tools
