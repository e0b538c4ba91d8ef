// SPDX-License-Identifier: Apache-2.0
//
// Draws the bar over its previous state.
#include "bench/progress_bar.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <string>

namespace xylem::tools {

ProgressBar::ProgressBar(std::size_t rows, bool visible)
    : rows_(rows), visible_(visible && rows > 0 && ::isatty(STDERR_FILENO) != 0) {}

void ProgressBar::show(std::string_view what) {
  if (!visible_) return;
  constexpr std::size_t kWidth = 30;
  const std::size_t filled = kWidth * done_ / rows_;
  fmt::print(stderr, "\r\x1b[K[{}{}] {}/{} {}", std::string(filled, '#'),
             std::string(kWidth - filled, '.'), done_, rows_, what);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressBar::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace xylem::tools
