// SPDX-License-Identifier: Apache-2.0
//
// ProgressBar: how far a benchmark is, on standard error and only if that is a terminal.
#pragma once

#include <cstddef>
#include <string_view>

namespace xylem::tools {

class ProgressBar {
 public:
  /// `visible`: on the rank that speaks.
  ProgressBar(std::size_t rows, bool visible);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows what is measured now.
  void show(std::string_view what);
  /// One row more is done.
  void advance() noexcept { ++done_; }
  /// Takes the bar off the screen, so that a line of the table can take its place.
  void clear();

 private:
  std::size_t rows_;
  std::size_t done_ = 0;
  bool visible_;
  bool shown_ = false;
};

}  // namespace xylem::tools
