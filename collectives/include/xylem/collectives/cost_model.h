// SPDX-License-Identifier: Apache-2.0
//
// CostModel: the constants by which the time of a schedule is estimated (estimate.h).
#pragma once

#include <cstdint>
#include <vector>

namespace xylem::collectives {

/// Cost of one kind of link.
struct LinkCost {
  double alpha_us = 0;        ///< Time of an empty message.
  double bandwidth_GBps = 1;  ///< 10^9 bytes per second.
};

/// The constants of one job, agreed by all ranks when a communicator is made.
struct CostModel {
  LinkCost local;   ///< Between two ranks of one host.
  LinkCost remote;  ///< Between hosts; shared by the ranks of a host.
  /// What one rank sends to other hosts, or gets from them, by its own NICs; 0: as much as its
  /// host.
  double rank_remote_GBps = 0;
  double reduce_GBps = 10;  ///< Bytes of output of a two-source reduction.
  double copy_GBps = 10;
  double step_us = 0.05;  ///< Dispatch of one slice of a step.
  /// The same in an exchange of single slices (schedule.h) within a host.
  double exchange_step_us = 0.05;
  std::uint64_t slice_bytes = 256 * 1024;
  std::vector<std::uint32_t> host;  ///< Host index of each rank; empty: all on one.
  /// By host index, for the host's ranks together: with more ranks they take turns. Empty, or 0:
  /// one for each rank.
  std::vector<std::uint32_t> host_cores;
  /// Until a core goes on with the next of its ranks, which may have to wait and pass it on:
  /// sched_yield and cold caches.
  double switch_us = 1.5;
};

/// What holds until something is measured: a shared-memory and a TCP transport of today's hosts,
/// all ranks on one.
CostModel assumed_costs();

}  // namespace xylem::collectives
