// SPDX-License-Identifier: Apache-2.0
//
// Rings and trees over the GPUs of one host: orders in which data travels, found for the links that
// the host has, beside what no order could exceed.
//
// Bandwidths are bus bandwidths of one direction in GB/s, as nccl-tests define them: a ring in
// which every GPU passes on b GB/s has the bus bandwidth b, for all_gather as for all_reduce. Where
// NVLink or XGMI alone make a ring, and carry more than PCIe would, PCIe is left to NICs and hosts,
// and counts in nothing here.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// More than any host has. Beyond, GPUs are left in order, no bandwidth is told, and nothing is
/// called exact.
inline constexpr std::size_t kMostSearchedGpus = 128;

/// What joins the GPUs.
enum class GpuFabric : std::uint8_t {
  none,      ///< Fewer than two GPUs.
  pcie,      ///< PCIe, perhaps beside NVLink that makes no ring or a slower one.
  partial,   ///< NVLink or XGMI between some pairs, enough for a ring.
  mesh,      ///< Between every pair, each as wide.
  nvswitch,  ///< By NVSwitches that all reach.
  unknown,   ///< Not looked at: more than kMostSearchedGpus.
};
std::string_view name(GpuFabric fabric) noexcept;

/// A way through all GPUs; the last passes on to the first.
struct Ring {
  std::vector<std::uint32_t> gpus;  ///< Indices. Begins with the first that was given.
  /// What it carries when it runs with the others of its plan. Absent if no link on it tells.
  std::optional<GBps> bandwidth;

  friend bool operator==(const Ring&, const Ring&) = default;
};

struct RingPlan {
  GpuFabric fabric = GpuFabric::none;
  /// The one with the most bandwidth when it runs alone and, among such, over the nearest paths.
  /// Two GPUs with an NVLink between them use it, as the hardware does.
  Ring best;
  /// False if the search gave up before it had seen that no ring is better than `best`.
  bool best_is_exact = true;
  /// Rings to run side by side, of equal bandwidth; `best` alone where more do not help.
  std::vector<Ring> channels;
  std::optional<GBps> bandwidth;  ///< Of the channels together.
  /// A ring crosses a link that nobody tells the bandwidth of, so bandwidths may be less.
  bool bandwidth_is_bound = false;

  friend bool operator==(const RingPlan&, const RingPlan&) = default;
};

/// A tree for reduce (towards the root) and broadcast (from it), both at once.
struct TreePlan {
  std::uint32_t root = 0;  ///< Index of a GPU.
  /// By place in the GPUs that were given; nothing at the root.
  std::vector<std::optional<std::uint32_t>> parents;
  std::uint32_t depth = 0;        ///< Hops from the root to the farthest.
  std::optional<GBps> bandwidth;  ///< What every hop carries in each direction at once.
  bool is_exact = true;  ///< False if the search gave up: more bandwidth, or less depth, may exist.

  friend bool operator==(const TreePlan&, const TreePlan&) = default;
};

/// What no schedule over the links that are planned with can exceed, whatever its order; absent
/// where links do not tell. Switches that reduce by themselves (NVLink SHARP) are not reckoned
/// with.
struct BandwidthBounds {
  /// min over sets S of vertices that leave a GPU out of (N - 1) capacity(S) / GPUs in S:
  /// ForestColl (Zhao et al. 2024), section 3, which also shows that some schedule reaches it.
  std::optional<GBps> all_gather;
  /// The least over cuts of the graph and over partitions of the GPUs (each alone, by switch, by
  /// host bridge, by NUMA node): k groups together pass on 2 (k - 1) times the data at least
  /// (Patarasuk, Yuan 2009, lemma 1).
  std::optional<GBps> all_reduce;

  friend bool operator==(const BandwidthBounds&, const BandwidthBounds&) = default;
};

/// Plans for all GPUs of the host, or for `gpus` (indices, each once, in any order).
RingPlan plan_rings(const Topology& topology);
RingPlan plan_rings(const Topology& topology, std::span<const std::uint32_t> gpus);
TreePlan plan_tree(const Topology& topology);
TreePlan plan_tree(const Topology& topology, std::span<const std::uint32_t> gpus);
BandwidthBounds bandwidth_bounds(const Topology& topology);
BandwidthBounds bandwidth_bounds(const Topology& topology, std::span<const std::uint32_t> gpus);

}  // namespace xylem::topology
