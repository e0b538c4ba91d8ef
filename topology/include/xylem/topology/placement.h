// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a host are at home: GPU, NICs, and the CPUs and memory near both.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology {

struct RankPlace {
  std::optional<std::uint32_t> gpu;  ///< Index; absent on a host without GPUs.
  std::vector<std::uint32_t> nics;   ///< Indices, the first to be preferred. Empty: none serves.
  /// Nodes with the CPUs and memory to use; several where nobody tells which is near its GPU or,
  /// without GPUs, where there are more nodes than ranks.
  Locality numa;
  /// Its share of each of those nodes' CPUs. Shares of ranks are disjoint, but for nodes with fewer
  /// CPUs than ranks. Empty where the source lists no CPUs.
  CpuSet cpus;
  /// "GPU0, mlx5_0, NUMA node 0, CPUs 0-15,64-79"
  std::string text;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Places of `ranks` ranks, in order. Rank i has GPU i (beginning again where there are more ranks
/// than GPUs), the NICs that assign_nics() gives that, and the NUMA node of the GPU, else of its
/// first NIC. Without GPUs, ranks are spread over the NUMA nodes in order, and each prefers another
/// of the rails that are near its node.
std::vector<RankPlace> place_ranks(const Topology& topology, std::uint32_t ranks);

}  // namespace xylem::topology
