// SPDX-License-Identifier: Apache-2.0
//
// Log lines about refused strangers.
#include "bootstrap/refusals.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::runtime {

void Refusals::note(std::string_view why) {
  const auto now = Clock::now();
  if (now < next_line_) {
    ++unreported_;
    return;
  }
  next_line_ = now + kPeriod;
  const std::uint64_t unreported = std::exchange(unreported_, 0);
  const std::string more =
      unreported == 0 ? "" : fmt::format(", and {} more before it", unreported);
  logger_.warn(fmt::format("start: refused a connection{}: {}", more, why));
}

}  // namespace xylem::runtime
