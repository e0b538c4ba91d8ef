// SPDX-License-Identifier: Apache-2.0
//
// RankSet: the ranks that have done what all ranks must do, such as joining the start, and the
// error that names the missing ranks.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace xylem::runtime {

class RankSet {
 public:
  explicit RankSet(std::uint32_t size) : here_(size, false), since_(Clock::now()) {}

  void add(std::uint32_t rank) { here_.at(rank) = true; }
  bool has(std::uint32_t rank) const { return here_.at(rank); }
  bool complete() const;
  std::vector<std::uint32_t> missing() const;

  /// The error `timed_out` with a text such as "rank 3 did not come within 60 s; 0, 1, 2 are here".
  /// The error's peer() is the first missing rank.
  Status missing_error() const;

 private:
  std::vector<bool> here_;
  Clock::time_point since_;
};

}  // namespace xylem::runtime
