// SPDX-License-Identifier: Apache-2.0
//
// Placement of the ranks of a host: each rank's GPU, NICs, and the CPUs and memory near both.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology {

struct RankPlace {
  std::optional<std::uint32_t> gpu;  ///< Index of the rank's GPU; absent on a host without GPUs.
  /// Indices of the NICs that serve the rank, the preferred one first. Empty: no NIC serves the
  /// rank.
  std::vector<std::uint32_t> nics;
  /// NUMA nodes whose CPUs and memory the rank should use. There are several nodes if it is unknown
  /// which node is near the rank's GPU, or if a host without GPUs has more nodes than ranks.
  Locality numa;
  /// The rank's share of the CPUs of each node in `numa`. The shares of different ranks are
  /// disjoint, except on nodes with fewer CPUs than ranks. Empty if the source lists no CPUs.
  CpuSet cpus;
  /// "GPU0, mlx5_0, NUMA node 0, CPUs 0-15,64-79"
  std::string text;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// The places of ranks 0 … `ranks` − 1 of a host. Rank i uses GPU i modulo the number of GPUs, the
/// NICs that assign_nics() assigns to this GPU, and the NUMA node of the GPU or, if this node is
/// unknown, of its first NIC. Without GPUs, ranks are spread over the NUMA nodes in order, and the
/// ranks of a node prefer different rails near the node, as far as there are enough.
std::vector<RankPlace> place_ranks(const Topology& topology, std::uint32_t ranks);

}  // namespace xylem::topology
