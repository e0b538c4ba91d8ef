// SPDX-License-Identifier: Apache-2.0
//
// estimate: predicts the time of schedules on a modelled fabric by running them in virtual time. A
// message of b bytes costs alpha + b / bandwidth on its link, and a reduce step gamma per byte
// (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, section 3). Links, and each rank's core, are
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

/// The constants of one job. All ranks agree on them when a communicator is made.
struct CostModel {
  LinkCost local;   ///< Between two ranks of one host.
  LinkCost remote;  ///< Between hosts; the ranks of a host share it.
  /// Bandwidth of one rank's own NICs, to or from other hosts; 0: as much as its host has.
  double rank_remote_GBps = 0;
  double reduce_GBps = 10;  ///< For bytes of output of a two-source reduction.
  double copy_GBps = 10;
  double step_us = 0.05;  ///< Time to dispatch one slice of a step.
  /// The same in an exchange (is_exchange() in schedule.h) within a host, with one slice per step.
  double exchange_step_us = 0.05;
  std::uint64_t slice_bytes = 256 * 1024;
  std::vector<std::uint32_t> host;  ///< Host index of each rank; empty: all ranks on one host.
  /// By host index, the number of cores for all ranks of the host together. With more ranks than
  /// cores, the ranks take turns. Empty, or 0: one core for each rank.
  std::vector<std::uint32_t> host_cores;
  /// Time until a core continues with its next rank: sched_yield and cold caches. That rank may
  /// only find that it has to wait, and pass the core on.
  double switch_us = 1.5;
};

/// Assumed constants, used until something is measured: typical shared-memory and TCP transports,
/// with all ranks on one host.
CostModel assumed_costs();

/// Predicted time in microseconds until the last rank is done. `ranks[i]` is the schedule of rank
/// i. The schedules must be verified; otherwise the result is meaningless. Equal inputs give equal
/// results on every rank.
double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model);
/// The same, computed from the representatives only. Valid if all images behave like their
/// representatives at every moment: the symmetry maps hosts to hosts, and all blocks are of about
/// the same size.
double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model);

/// When a step starts to wait for nothing but its rank's core and ports, and when it completes. A
/// send completes when all its bytes have arrived.
struct StepTime {
  double began_us = 0;
  double ended_us = 0;
};

/// Predicted times of all steps, by rank and step; a receive has the times of its send. Larger
/// slices than the model's are used if that keeps a step to 16 slices, so for long messages the
/// last step may end at another time than estimate_us() predicts. Precondition: verified schedules.
std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model);

}  // namespace xylem::collectives
