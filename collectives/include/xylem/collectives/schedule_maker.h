// SPDX-License-Identifier: Apache-2.0
//
// Access to a plan whose schedules together would not fit into memory: rank by rank, and in parts
// that threads can process concurrently.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <functional>

namespace xylem::collectives {

/// Makes the schedule of a rank.
using ScheduleMaker = std::function<Schedule(std::uint32_t rank)>;
/// Calls part(0) … part(parts − 1), in any order and on any number of threads, and returns when all
/// calls have returned.
using ParallelFor =
    std::function<void(std::uint32_t parts, const std::function<void(std::uint32_t part)>& part)>;

}  // namespace xylem::collectives
