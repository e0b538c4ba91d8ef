// SPDX-License-Identifier: Apache-2.0
//
// rename: gives the ranks of a plan other numbers. Planners make plans for places: the places of a
// host are consecutive, so that neighbours in a ring are on one host where possible. Where ranks
// are numbered differently (launchers that deal them to the hosts in turn), the plan for the places
// is renamed to the ranks.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <span>
#include <vector>

namespace xylem::collectives {

/// The places of the ranks of a communicator.
struct Placement {
  /// The rank at each place: the ranks of one host, then those of the next host, …. Empty if each
  /// rank has the place of its number.
  std::vector<std::uint32_t> order;
  std::uint32_t per_host = 1;             ///< Shape::per_host
  std::vector<std::uint32_t> host_sizes;  ///< Shape::host_sizes
};

/// The places of `ranks` ranks, of which rank r is on host number host[r]. If `host` is empty, all
/// ranks are on one host, and keep their numbers. Otherwise ranks are counted from `root` on, and
/// place 0 is the root's: so a chain of all ranks that begins at the root enters each host once.
Placement placement(std::span<const std::uint32_t> host,
                    std::uint32_t ranks,
                    std::uint32_t root = 0);

/// Turns the schedule of the place schedule.rank into that of the rank order[schedule.rank], where
/// `order` has the rank at each place. Blocks that belong to ranks are renamed, too. Precondition:
/// the planner does not move ranges (Planner::moves_ranges), and operands are in this rank's own
/// memory.
Schedule renamed(Schedule schedule, std::span<const std::uint32_t> order);

}  // namespace xylem::collectives
