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

/// What copies and reduces at a rank: its core or, for calls on the memory of a device, that
/// device.
struct ComputeCost {
  double reduce_GBps = 10;  ///< Bytes of output that a reduction of two sources makes per time.
  double copy_GBps = 10;
  /// True for a device. It works beside the core of its rank, which only gives it each slice.
  bool is_device = false;
  /// For a device: the time of the core to give it one slice, beyond CostModel::step_us.
  double enqueue_us = 0;
  /// For a device: the time until it begins a slice that it was given, plus the time until the core
  /// notices that the slice is done. Slices overlap in it.
  double latency_us = 0;
  /// For a device: the rate at which it reads host memory, which is also the rate at which it can
  /// write host memory at the same time. If it is above 0, schedules are staged (staging.h):
  /// messages use only scratch, which is memory of the host. If it is 0, messages go directly from
  /// and to the memory of the device.
  double host_GBps = 0;
  /// If schedules are staged: whether messages within a host are, too.
  bool stages_local = true;

  bool is_staged() const noexcept { return is_device && host_GBps > 0; }
};

/// The constants of one job. All ranks agree on them when a communicator is made.
struct CostModel {
  LinkCost local;   ///< Between two ranks of one host.
  LinkCost remote;  ///< Between hosts; the ranks of a host share it.
  /// Bandwidth of one rank's own NICs, to or from other hosts; 0: as much as its host has.
  double rank_remote_GBps = 0;
  ComputeCost compute;    ///< The same at all ranks.
  double step_us = 0.05;  ///< Time to dispatch one slice of a step.
  /// Like step_us, but for an exchange (is_exchange() in schedule.h) within a host, with one slice
  /// per step.
  double exchange_step_us = 0.05;
  std::uint64_t slice_bytes = 256 * 1024;
  std::vector<std::uint32_t> host;  ///< Host index of each rank; empty: all ranks on one host.
  /// For each host, the number of cores for all its ranks together. With more ranks than cores, the
  /// ranks take turns. Empty, or 0: one core for each rank.
  std::vector<std::uint32_t> host_cores;
  /// Time until a core continues with its next rank: sched_yield and cold caches. The next rank may
  /// only find that it has to wait, and pass the core on.
  double switch_us = 1.5;

  bool are_together(std::uint32_t a, std::uint32_t b) const {
    return host.empty() || host[a] == host[b];
  }
  /// The link that messages between two ranks take.
  const LinkCost& link(std::uint32_t a, std::uint32_t b) const {
    return are_together(a, b) ? local : remote;
  }
};

/// Assumed constants, used until something is measured: typical shared-memory and TCP transports,
/// with all ranks on one host.
CostModel assumed_costs();

}  // namespace xylem::collectives
