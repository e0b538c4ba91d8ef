// SPDX-License-Identifier: Apache-2.0
//
// Refusals: logs refused connections of strangers (processes that do not belong to the job), at
// most one line a second.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/log.h"

#include <chrono>
#include <cstdint>
#include <string_view>

namespace xylem::runtime {

class Refusals {
 public:
  explicit Refusals(Logger logger) : logger_(std::move(logger)) {}

  /// Counts one more refusal, for this reason.
  void note(std::string_view why);

 private:
  static constexpr std::chrono::seconds kPeriod{1};

  Logger logger_;
  Clock::time_point next_line_;  ///< The earliest time of the next line.
  std::uint64_t unreported_ = 0;
};

}  // namespace xylem::runtime
