// SPDX-License-Identifier: Apache-2.0
//
// Draws a plan: which rank sends what to which other rank, and when.
#pragma once

#include "plan/job.h"
#include "xylem/collectives/choose.h"

#include <cstdint>
#include <string>

namespace xylem::tools {

/// A picture with more rows would not be readable.
inline constexpr std::uint32_t kMostDrawnRanks = 64;

/// A self-contained SVG: time runs to the right, each rank has a row, messages are lines between
/// rows, and reductions and copies are bars. `title` is the heading, and `bytes` is the size for
/// which the plan was chosen. Precondition: at most kMostDrawnRanks ranks.
std::string draw_plan(const PlannedJob& job,
                      const collectives::Choice& choice,
                      std::uint64_t bytes,
                      const std::string& title);

}  // namespace xylem::tools
