// SPDX-License-Identifier: Apache-2.0
//
// CostModel: the constants by which the time of a schedule is estimated (estimate.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace xylem::collectives {

/// Cost of one kind of link.
struct LinkCost {
  double alpha_us = 0;        ///< Time of an empty message.
  double bandwidth_GBps = 1;  ///< 10^9 bytes per second.
};

/// What copies and reduces at a rank: the core of the rank or, if the buffers of the call are in
/// the memory of a device, the device.
struct ComputeCost {
  double reduce_GBps = 10;  ///< Rate of the output of a reduction of two sources.
  double copy_GBps = 10;
  /// True for a device. The core of the rank enqueues each slice on the device, and is free for
  /// other work while the device copies or reduces.
  bool is_device = false;
  /// For a device: the time that the core needs to enqueue one slice, in addition to
  /// CostModel::step_us.
  double enqueue_us = 0;
  /// For a device: the time from the enqueueing of a slice until the device begins it, plus the
  /// time from the end of the slice until the core detects the end. The latencies of different
  /// slices may overlap.
  double latency_us = 0;
  /// For a device: the rate at which it reads host memory. It can write host memory at the same
  /// rate at the same time. If the rate is above 0, schedules are staged (staging.h): messages use
  /// only scratch, and scratch is host memory. If the rate is 0, messages are sent directly from
  /// the memory of the device, and received directly into it.
  double host_GBps = 0;
  /// If schedules are staged: whether messages within a host are staged, too.
  bool stages_local = true;

  bool is_staged() const noexcept { return is_device && host_GBps > 0; }
};

/// The ports of one level of the network between hosts, such as all NICs, or the uplinks of all
/// racks. Each rank is behind one port of the level. A message passes, at each level where its
/// ranks are behind different ports, first the port of the sender and then that of the receiver.
struct PortLevel {
  std::vector<std::uint32_t> port;  ///< The port of each rank.
  std::vector<double> rate_GBps;    ///< The rate of each port, in each direction; above 0.
};

/// The constants for the plans of one communicator. All its ranks use the same values.
struct CostModel {
  LinkCost local;  ///< Between two ranks of one host.
  /// Between hosts. The bandwidth is the most that one rank sends, or receives.
  LinkCost remote;
  /// The levels of the network between hosts, from the ranks outwards. Empty: the ranks of a host
  /// share one port with the bandwidth of `remote`.
  std::vector<PortLevel> network;
  ComputeCost compute;    ///< The same at all ranks.
  double step_us = 0.05;  ///< Time to dispatch one slice of a step.
  /// Like step_us, but for an exchange (is_exchange() in schedule.h) within a host, with one slice
  /// per step.
  double exchange_step_us = 0.05;
  /// Times of the core of a rank to send one slice of a message between hosts, in addition to
  /// step_us, and to receive it.
  double remote_send_us = 0, remote_receive_us = 0;
  /// The rate at which the core of a rank sends, or receives, the bytes of messages between hosts;
  /// 0: the bytes take no time of a core (RDMA).
  double remote_core_GBps = 0;
  std::uint64_t slice_bytes = 256 * 1024;
  /// The number of ranks on other hosts with which a rank should exchange messages at most: each
  /// peer costs a connection, and messages from many at once overflow queues in the network.
  std::uint32_t most_peers = 256;
  /// For each rank, its host: the ranks of a host share memory. Empty: all ranks are on one host.
  std::vector<std::uint32_t> host;
  /// For each rank, its machine: the ranks of a machine share its cores. A machine has one host or
  /// several (containers). Empty: every host is a machine.
  std::vector<std::uint32_t> machine;
  /// For each machine, the number of cores that its ranks share. If there are fewer cores than
  /// ranks, the ranks of one core run one at a time. Empty, or 0 for a machine: one core for each
  /// rank.
  std::vector<std::uint32_t> machine_cores;
  /// Time to switch a core from one rank to the next: sched_yield and cold caches. A core also
  /// switches to ranks that have nothing to do, and they yield at once.
  double switch_us = 1.5;

  bool are_together(std::uint32_t a, std::uint32_t b) const {
    return host.empty() || host[a] == host[b];
  }
  /// The cost of messages between two ranks.
  const LinkCost& link(std::uint32_t a, std::uint32_t b) const {
    return are_together(a, b) ? local : remote;
  }
  std::uint32_t machine_of(std::uint32_t rank) const {
    return !machine.empty() ? machine[rank] : host.empty() ? 0 : host[rank];
  }
  /// The number of cores of a machine; 0: one for each rank.
  std::uint32_t cores_of(std::uint32_t of_machine) const {
    return of_machine < machine_cores.size() ? machine_cores[of_machine] : 0;
  }
  /// Whether a machine has fewer cores than ranks, of which there are `ranks` in all.
  bool shares_cores(std::uint32_t ranks) const;
  /// The cost of messages from rank `a` to rank `b`, if nothing else is under way: the time of an
  /// empty message, with that of the cores, and the rate of a stream of messages.
  LinkCost between(std::uint32_t a, std::uint32_t b) const;
  /// The model for some of the ranks, which become ranks 0, 1, …. The cores and ports stay as they
  /// are.
  CostModel of_ranks(std::span<const std::uint32_t> ranks) const;
};

/// The constants of typical shared-memory and TCP transports, with all ranks on one host. They are
/// used if nothing has been measured.
CostModel assumed_costs();

/// The model of the same ranks if their buffers are in the memory of GPUs. `model` is that of
/// buffers in host memory. The costs of the GPUs are assumed: nobody has measured them here.
/// Between hosts, messages are staged.
CostModel device_costs(CostModel model, std::uint64_t slice_bytes);

}  // namespace xylem::collectives
