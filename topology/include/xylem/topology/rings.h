// SPDX-License-Identifier: Apache-2.0
//
// Rings over the GPUs of one host: orders in which data can travel over the links of the
// host, and upper bounds for any order.
//
// Bandwidths are bus bandwidths in one direction in GB/s, as nccl-tests define them: if every GPU
// of a ring sends b GB/s to the next GPU, the ring has the bus bandwidth b, for all_gather and for
// all_reduce. If a ring is possible over NVLink or XGMI alone, with at least the bandwidth of PCIe,
// then PCIe links are not used here: they are left to the traffic with NICs and hosts.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xylem::topology {

/// The largest number of GPUs for which rings are searched; no host has more. For more GPUs, the
/// result is one ring in the order of the argument, without a bandwidth and not marked as exact.
inline constexpr std::size_t kMostSearchedGpus = 128;

/// What connects the GPUs.
enum class GpuFabric : std::uint8_t {
  none,      ///< Fewer than two GPUs.
  pcie,      ///< PCIe, possibly with NVLink that forms no ring, or a ring slower than PCIe.
  partial,   ///< NVLink or XGMI between some pairs, enough for a ring.
  mesh,      ///< Links of equal width between every pair.
  nvswitch,  ///< NVSwitches that all GPUs reach.
  unknown,   ///< Not analysed: more than kMostSearchedGpus GPUs.
};

/// A cycle through all GPUs: each sends to the next one, and the last GPU to the first.
struct Ring {
  /// Indices of the GPUs. The ring begins with the first GPU of the argument of plan_rings().
  std::vector<std::uint32_t> gpus;
  /// The bandwidth of the ring: for RingPlan::best when it runs alone, for RingPlan::channels while
  /// all of them run. Absent if no link of the rings has a known bandwidth.
  std::optional<GBps> bandwidth;

  friend bool operator==(const Ring&, const Ring&) = default;
};

struct RingPlan {
  GpuFabric fabric = GpuFabric::none;
  /// The ring with the greatest bandwidth when it runs alone; among rings of equal bandwidth, one
  /// with the nearest paths. Neighbours in the ring that have an NVLink between them use this link,
  /// as the hardware does.
  Ring best;
  /// False if the search stopped early, so a better ring than `best` may exist.
  bool best_is_exact = true;
  /// Rings of equal bandwidth to run at the same time, each on a channel of its own; only `best` if
  /// several rings have no higher total bandwidth.
  std::vector<Ring> channels;
  std::optional<GBps> bandwidth;  ///< The total bandwidth of `channels`.
  /// True if a ring uses a link of unknown bandwidth, so that the real bandwidth may be less.
  bool bandwidth_is_bound = false;

  friend bool operator==(const RingPlan&, const RingPlan&) = default;
};

/// Upper bounds for any schedule over the links that plan_rings() uses; absent if the bandwidths of
/// links are unknown. Reduction inside switches (NVLink SHARP) is not taken into account.
struct BandwidthBounds {
  /// For N GPUs, (N - 1) times the minimum of capacity(S) divided by the number of GPUs in S, over
  /// all sets S of vertices that leave out some GPU. capacity(S) is the total bandwidth of the
  /// links that leave S. ForestColl (Zhao et al. 2024), section 3, also shows that some schedule
  /// reaches this bound.
  std::optional<GBps> all_gather;
  /// The least bound that follows from cuts of the graph and from partitions of the GPUs (each GPU
  /// alone, by switch, by host bridge, by NUMA node): k groups together must send at least 2k - 2
  /// times the data (Patarasuk, Yuan 2009, lemma 1).
  std::optional<GBps> all_reduce;

  friend bool operator==(const BandwidthBounds&, const BandwidthBounds&) = default;
};

/// Plans for all GPUs of the host, or for `gpus` (distinct indices in any order).
RingPlan plan_rings(const Topology& topology);
RingPlan plan_rings(const Topology& topology, std::span<const std::uint32_t> gpus);
BandwidthBounds bandwidth_bounds(const Topology& topology);
BandwidthBounds bandwidth_bounds(const Topology& topology, std::span<const std::uint32_t> gpus);

}  // namespace xylem::topology
