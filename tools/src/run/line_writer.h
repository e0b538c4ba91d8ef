// SPDX-License-Identifier: Apache-2.0
//
// LineWriter: what one stream of one rank says, as whole lines that each begin with the same
// prefix. Whoever writes them out with one call a line mixes streams only between lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xylem::tools {

class LineWriter {
 public:
  /// A longer line is cut there, so that a rank that never ends a line cannot fill the launcher's
  /// memory.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  explicit LineWriter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// The lines that `bytes` completes, each with prefix and line break; the rest is kept.
  std::string feed(std::string_view bytes);
  /// The last line where it lacks its line break, which is added.
  std::string finish();

 private:
  void end_line(std::string& out);

  std::string prefix_;
  std::string line_;
};

}  // namespace xylem::tools
