// SPDX-License-Identifier: Apache-2.0
//
// Packages, NUMA nodes, and which NUMA nodes an object is near.
#include "hwloc_xml/build.h"
#include "hwloc_xml/values.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace xylem::topology::hwloc_xml {
namespace {

/// An object and its os_index.
struct Numbered {
  std::uint32_t os_index;
  std::uint32_t object;
};

Result<std::vector<Numbered>> numbered_objects(const Build& build, ObjectType type) {
  std::vector<Numbered> found;
  for (std::uint32_t i = 0; i < build.nodes.size(); ++i) {
    if (build.object(i).type != type) continue;
    const pugi::xml_node node = build.object(i).node;
    const auto os_index = parse_number<std::uint32_t>(node.attribute("os_index").value());
    if (!os_index) {
      return build.document.error(node, fmt::format("os_index \"{}\" is no number",
                                                    excerpt(node.attribute("os_index").value())));
    }
    found.push_back({*os_index, i});
  }
  std::ranges::sort(found, [](const Numbered& left, const Numbered& right) {
    return std::tuple(left.os_index, left.object) < std::tuple(right.os_index, right.object);
  });
  return found;
}

/// The bitmap in `attribute`; the empty set if the attribute is absent.
Result<CpuSet> bitmap(const Build& build, std::uint32_t object, const char* attribute) {
  const pugi::xml_node node = build.object(object).node;
  const pugi::xml_attribute text = node.attribute(attribute);
  if (!text) return CpuSet();
  auto set = CpuSet::parse_bitmap(text.value());
  if (set) return *std::move(set);
  return build.document.error(
      node, fmt::format(
                "{} \"{}\" is no finite bitmap of at most {} bits (such as 0x0000ffff,0xffffffff)",
                attribute, excerpt(text.value()), kMaxCpu + 1));
}

Status add_packages(Build& build) {
  XYLEM_TRY(const auto packages, numbered_objects(build, ObjectType::package));
  const pugi::xml_node root = build.document.objects().front().node;
  const std::string machine_model = Document::info(root, "CPUModel");
  for (const auto& [os_index, object] : packages) {
    Package package;
    package.os_index = os_index;
    package.cpu_model = Document::info(build.object(object).node, "CPUModel");
    if (package.cpu_model.empty()) package.cpu_model = machine_model;
    XYLEM_TRY(package.cpus, bitmap(build, object, "cpuset"));
    build.nodes[object] =
        NodeRef{NodeKind::package, static_cast<std::uint32_t>(build.machine.packages.size())};
    build.machine.packages.push_back(std::move(package));
  }
  return Status::ok();
}

Status add_numa_nodes(Build& build) {
  XYLEM_TRY(const auto nodes, numbered_objects(build, ObjectType::numa_node));
  for (const auto& [os_index, object] : nodes) {
    auto& numa_nodes = build.machine.numa_nodes;
    const pugi::xml_node node = build.object(object).node;
    if (!numa_nodes.empty() && numa_nodes.back().os_index == os_index) {
      return build.document.error(node, fmt::format("NUMA node {} is here twice", os_index));
    }
    NumaNode numa;
    numa.os_index = os_index;
    XYLEM_TRY(numa.cpus, bitmap(build, object, "cpuset"));
    numa.memory =
        Bytes{parse_number<std::uint64_t>(node.attribute("local_memory").value()).value_or(0)};
    build.nodes[object] =
        NodeRef{NodeKind::numa_node, static_cast<std::uint32_t>(numa_nodes.size())};
    numa_nodes.push_back(std::move(numa));
  }
  if (!build.machine.numa_nodes.empty()) return Status::ok();

  // The kernel has no NUMA support: all memory is equally near.
  const pugi::xml_node root = build.document.objects().front().node;
  NumaNode whole;
  whole.implied = true;
  XYLEM_TRY(whole.cpus, bitmap(build, 0, "cpuset"));
  whole.memory =
      Bytes{parse_number<std::uint64_t>(root.attribute("local_memory").value()).value_or(0)};
  build.machine.numa_nodes.push_back(std::move(whole));
  return Status::ok();
}

/// Finds the package of each NUMA node: the package whose nodeset contains the node or, if there
/// are no nodesets, the package that shares its CPUs.
Status place_numa_nodes(Build& build) {
  std::vector<CpuSet> nodesets(build.machine.packages.size());
  for (std::uint32_t i = 0; i < build.nodes.size(); ++i) {
    if (const auto node = build.nodes[i]; node && node->kind == NodeKind::package) {
      XYLEM_TRY(nodesets[node->index], bitmap(build, i, "nodeset"));
    }
  }
  for (NumaNode& numa : build.machine.numa_nodes) {
    std::vector<std::uint32_t> owners;
    for (std::uint32_t i = 0; i < nodesets.size(); ++i) {
      const bool owns = nodesets[i].empty() ? build.machine.packages[i].cpus.intersects(numa.cpus)
                                            : nodesets[i].contains(numa.os_index);
      if (owns) owners.push_back(i);
    }
    if (owners.size() == 1) numa.package = owners.front();
  }
  return Status::ok();
}

/// For each CPU, the index of the element of `places` that contains it; places.size() if there is
/// none.
template <typename Place>
std::vector<std::uint32_t> place_by_cpu(const std::vector<Place>& places) {
  std::vector<std::uint32_t> by_cpu(kMaxCpu + 1, static_cast<std::uint32_t>(places.size()));
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    for (const CpuSet::Range& range : places[i].cpus.ranges()) {
      std::fill(by_cpu.begin() + range.first, by_cpu.begin() + range.last + 1, i);
    }
  }
  return by_cpu;
}

/// Counts each core in the package and the NUMA node of its first CPU. If the file lists no cores,
/// the counts stay unknown.
Status count_cores(Build& build) {
  std::vector<std::uint32_t> cores;
  for (std::uint32_t i = 0; i < build.nodes.size(); ++i) {
    if (build.object(i).type != ObjectType::core) continue;
    XYLEM_TRY(const CpuSet cpus, bitmap(build, i, "cpuset"));
    if (!cpus.empty()) cores.push_back(cpus.ranges().front().first);
  }
  if (cores.empty()) return Status::ok();
  const auto count = [&](auto& places) {
    const auto by_cpu = place_by_cpu(places);
    for (auto& place : places) place.cores = 0;
    for (const std::uint32_t cpu : cores) {
      if (by_cpu[cpu] < places.size()) ++*places[by_cpu[cpu]].cores;
    }
  };
  count(build.machine.packages);
  count(build.machine.numa_nodes);
  return Status::ok();
}

bool is_io(ObjectType type) {
  return type == ObjectType::bridge || type == ObjectType::pci_device ||
         type == ObjectType::os_device;
}

/// The NUMA nodes to which a device may be near: those that have CPUs, since others are the memory
/// of GPUs. If no node has CPUs, all nodes.
Locality candidates(const Machine& machine) {
  Locality with_cpus;
  Locality all;
  for (std::uint32_t i = 0; i < machine.numa_nodes.size(); ++i) {
    all.push_back(i);
    if (!machine.numa_nodes[i].cpus.empty()) with_cpus.push_back(i);
  }
  return with_cpus.empty() ? all : with_cpus;
}

}  // namespace

Status build_processors(Build& build) {
  XYLEM_TRY(add_packages(build));
  XYLEM_TRY(add_numa_nodes(build));
  XYLEM_TRY(place_numa_nodes(build));
  return count_cores(build);
}

Result<Locality> locality_of(Build& build, std::uint32_t object) {
  while (is_io(build.object(object).type)) object = build.object(object).parent;
  if (const auto known = build.localities.find(object); known != build.localities.end()) {
    return known->second;
  }
  XYLEM_TRY(const CpuSet nodeset, bitmap(build, object, "nodeset"));
  XYLEM_TRY(const CpuSet cpuset, bitmap(build, object, "cpuset"));
  const Locality all = candidates(build.machine);
  Locality near;
  for (const std::uint32_t node : all) {
    const NumaNode& numa = build.machine.numa_nodes[node];
    const bool is_near =
        nodeset.empty() ? cpuset.intersects(numa.cpus) : nodeset.contains(numa.os_index);
    if (is_near) near.push_back(node);
  }
  return build.localities[object] = near.empty() ? all : near;
}

}  // namespace xylem::topology::hwloc_xml
