// SPDX-License-Identifier: Apache-2.0
//
// estimate: the time schedules take on a modelled fabric, by running them in virtual time. A
// message of b bytes costs alpha + b / bandwidth on the link it takes, a reduce step gamma per byte
// (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, section 3); links and each rank's core are
// shared.
#pragma once

#include "xylem/collectives/layout.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>
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

/// Predicted microseconds until the last rank is done. `ranks[i]` is rank i's schedule; verified,
/// or the answer is meaningless. Same input, same answer, on every rank.
double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model);
/// The same from the representatives alone, where images run in step with them: the symmetry takes
/// hosts to hosts, and all blocks are of about the same size.
double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model);

/// When a step begins to wait for nothing but its rank's core and ports, and when it is done; of a
/// send, when all has arrived.
struct StepTime {
  double began_us = 0;
  double ended_us = 0;
};

/// Predicted times of all steps of all ranks, by rank and step; a receive has those of its send.
/// The model's slices are made larger where that keeps steps to 16 of them, so the last step may
/// end otherwise than estimate_us() says of long messages. Precondition: verified schedules.
std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model);

}  // namespace xylem::collectives
