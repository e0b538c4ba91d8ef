// SPDX-License-Identifier: Apache-2.0
//
// A plan as a picture: who sends what to whom, and when.
#pragma once

#include "plan/job.h"
#include "xylem/collectives/choose.h"

#include <cstdint>
#include <string>

namespace xylem::tools {

/// More rows than these nobody reads.
inline constexpr std::uint32_t kMostDrawnRanks = 64;

/// A self-contained SVG: time to the right, a row for each rank, messages as lines from row to row,
/// reductions and copies as bars. `title` heads it; `bytes` is what the chooser was asked for.
/// Precondition: at most kMostDrawnRanks ranks.
std::string draw_plan(const PlannedJob& job,
                      const collectives::Choice& choice,
                      std::uint64_t bytes,
                      const std::string& title);

}  // namespace xylem::tools
