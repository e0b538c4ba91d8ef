// SPDX-License-Identifier: Apache-2.0
//
// `xylem info --paths`: how the ranks of a job reach each other.
#pragma once

#include "xylem/runtime/path_info.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xylem::tools {

/// How a rank reaches the others, in one line for each transport and rate: "tcp to 0-3: 41 us,
/// 0.119 GB/s". `paths` has an entry for every rank, also for this one.
std::string path_lines(std::uint32_t rank, std::span<const PathInfo> paths);

/// Names the ranks whose hosts are slower than most. `best_GBps` has for each rank the rate of its
/// best path to another host, or 0 if it has none. Empty if there is no such rank.
std::string slow_hosts_text(std::span<const double> best_GBps, std::span<const PathInfo> paths);

/// Joins the job that a launcher has started. Rank 0 prints how each rank reaches the others.
/// Collective over the job. Returns the exit status of this rank.
int info_paths();

}  // namespace xylem::tools
