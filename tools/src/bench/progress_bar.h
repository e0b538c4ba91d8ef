// SPDX-License-Identifier: Apache-2.0
//
// ProgressBar: shows the progress of a benchmark on standard error, only if that is a terminal.
#pragma once

#include <cstddef>
#include <string_view>

namespace xylem::tools {

class ProgressBar {
 public:
  /// `visible` is true on the rank that prints.
  ProgressBar(std::size_t rows, bool visible);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows what is being measured.
  void show(std::string_view what);
  /// Counts one finished row.
  void advance() noexcept { ++done_; }
  /// Removes the bar, so that a line of the table can be printed in its place.
  void clear();

 private:
  std::size_t rows_;
  std::size_t done_ = 0;
  bool visible_;
  bool shown_ = false;
};

}  // namespace xylem::tools
