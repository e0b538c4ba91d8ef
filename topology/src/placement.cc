// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/placement.h"

#include "xylem/topology/assignment.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

bool has_cpus(const Topology& topology, std::uint32_t node) {
  return !topology.numa_nodes()[node].cpus.empty();
}

/// All nodes with CPUs or, if the source lists no CPUs, all nodes.
Locality nodes_with_cpus(const Topology& topology) {
  Locality all, with_cpus;
  for (std::uint32_t i = 0; i < topology.numa_nodes().size(); ++i) {
    all.push_back(i);
    if (has_cpus(topology, i)) with_cpus.push_back(i);
  }
  return with_cpus.empty() ? all : with_cpus;
}

/// The nodes in `numa`, but nodes without CPUs (memory of a GPU) are replaced by the nodes of the
/// same package that have CPUs.
Locality with_cpus(const Topology& topology, const Locality& numa) {
  Locality result;
  for (const std::uint32_t candidate : nodes_with_cpus(topology)) {
    const auto belongs = [&](std::uint32_t node) {
      const auto& package = topology.numa_nodes()[node].package;
      return node == candidate || (!has_cpus(topology, node) && package &&
                                   package == topology.numa_nodes()[candidate].package);
    };
    if (std::ranges::any_of(numa, belongs)) result.push_back(candidate);
  }
  return result.empty() ? nodes_with_cpus(topology) : result;
}

/// The NUMA node of the GPU or, if only the NUMA node of the first NIC is known, that of the NIC.
Locality home_of(const Topology& topology, std::uint32_t gpu, const RankPlace& place) {
  const Locality& near_gpu = topology.gpus()[gpu].pci.numa;
  const bool nic_knows = !place.nics.empty() && near_gpu.size() > 1 &&
                         topology.nics()[place.nics[0]].pci.numa.size() == 1;
  return with_cpus(topology, nic_knows ? topology.nics()[place.nics[0]].pci.numa : near_gpu);
}

/// The rails near these nodes or, if there are none, all rails, rotated so that the `turn`-th of
/// them comes first.
std::vector<std::uint32_t> rails_near(const Topology& topology,
                                      const std::vector<std::uint32_t>& rails,
                                      const Locality& numa,
                                      std::size_t turn) {
  std::vector<std::uint32_t> near;
  for (const std::uint32_t nic : rails) {
    const Locality& place = topology.nics()[nic].pci.numa;
    if (place.size() == 1 && std::ranges::find(numa, place[0]) != numa.end()) near.push_back(nic);
  }
  if (near.empty()) near = rails;
  if (!near.empty()) {
    std::ranges::rotate(near, near.begin() + static_cast<std::ptrdiff_t>(turn % near.size()));
  }
  return near;
}

/// Part number `part` of `parts` equal parts of `cpus`. If each range has at least `parts` CPUs,
/// each range is divided separately: the second hardware threads of the cores usually have a range
/// of their own, so both threads of a core are then in the same part. A set with fewer CPUs than
/// parts is not divided.
CpuSet part_of(const CpuSet& cpus, std::uint32_t part, std::uint32_t parts) {
  const auto cut = [&](std::uint32_t length, std::uint32_t at) {
    return static_cast<std::uint32_t>(std::uint64_t{length} * at / parts);
  };
  const auto length_of = [](const CpuSet::Range& range) { return range.last - range.first + 1; };
  const bool by_range = std::ranges::all_of(
      cpus.ranges(), [&](const CpuSet::Range& range) { return length_of(range) >= parts; });
  CpuSet result;
  if (cpus.count() < parts) return cpus;
  std::uint32_t passed = 0;
  for (const CpuSet::Range& range : cpus.ranges()) {
    const std::uint32_t length = length_of(range);
    const std::uint32_t whole = by_range ? length : cpus.count();
    const std::uint32_t before = by_range ? 0 : passed;
    const std::uint32_t begin = std::max(cut(whole, part), before);
    const std::uint32_t end = std::min(cut(whole, part + 1), before + length);
    if (begin < end) result.add(range.first + begin - before, range.first + end - before - 1);
    passed += length;
  }
  return result;
}

std::string text_of(const Topology& topology, const RankPlace& place) {
  std::vector<std::string> parts;
  if (place.gpu) parts.push_back(fmt::format("GPU{}", *place.gpu));
  for (const std::uint32_t nic : place.nics) parts.push_back(topology.nics()[nic].name);
  std::vector<std::uint32_t> nodes;
  for (const std::uint32_t node : place.numa) {
    nodes.push_back(topology.numa_nodes()[node].os_index);
  }
  // If the place of the GPU is unknown, the GPU is near one of these nodes ("or"). Without GPUs,
  // the rank uses all of these nodes ("and").
  parts.push_back(fmt::format("NUMA node{} {}", nodes.size() == 1 ? "" : "s",
                              fmt::join(nodes, place.gpu ? " or " : " and ")));
  if (!place.cpus.empty()) parts.push_back(fmt::format("CPUs {}", place.cpus.to_string()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<RankPlace> place_ranks(const Topology& topology, std::uint32_t ranks) {
  const NicAssignment assignment = assign_nics(topology);
  const auto gpus = static_cast<std::uint32_t>(topology.gpus().size());
  const Locality nodes = nodes_with_cpus(topology);
  std::vector<RankPlace> places(ranks);
  // Number of ranks on each node.
  std::vector<std::uint32_t> users(topology.numa_nodes().size(), 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    RankPlace& place = places[rank];
    if (gpus > 0) {
      const std::uint32_t gpu = rank % gpus;
      place.gpu = gpu;
      place.nics = assignment.gpus[gpu].nics;
      place.numa = home_of(topology, gpu, place);
    } else {
      // A node may have several ranks, or a rank several nodes.
      const std::size_t first = std::size_t{rank} * nodes.size() / ranks;
      const std::size_t end = std::max(first + 1, (std::size_t{rank} + 1) * nodes.size() / ranks);
      place.numa.assign(nodes.begin() + static_cast<std::ptrdiff_t>(first),
                        nodes.begin() + static_cast<std::ptrdiff_t>(end));
      place.nics = rails_near(topology, assignment.rails, place.numa, users[place.numa[0]]);
    }
    for (const std::uint32_t node : place.numa) ++users[node];
  }
  std::vector<std::uint32_t> passed(users.size(), 0);
  for (RankPlace& place : places) {
    for (const std::uint32_t node : place.numa) {
      const CpuSet& cpus = topology.numa_nodes()[node].cpus;
      const CpuSet share = part_of(cpus, passed[node]++, users[node]);
      for (const CpuSet::Range& range : share.ranges()) place.cpus.add(range.first, range.last);
    }
    place.text = text_of(topology, place);
  }
  return places;
}

}  // namespace xylem::topology
