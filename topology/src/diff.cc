// SPDX-License-Identifier: Apache-2.0
//
// Compares two machines fact by fact. Devices are matched by PCI address, NUMA nodes by number.
#include "words.h"
#include "xylem/topology/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace xylem::topology {
namespace {

/// The facts of one thing (a device, NUMA node or link), by the name of the fact.
using Facts = std::map<std::string, std::string>;
/// Facts by the name of the thing, such as "GPU at 0000:3b:00.0".
using Things = std::map<std::string, Facts>;

constexpr std::string_view kBridge = "bridge at ";

bool has_cpus(const NumaNode& node) { return !node.cpus.empty(); }

/// True if a device may be near any NUMA node with CPUs, so the source does not state its place.
bool is_anywhere(const Topology& topology, const Locality& numa) {
  const auto near = std::ranges::count_if(
      numa, [&](std::uint32_t index) { return has_cpus(topology.numa_nodes()[index]); });
  return numa.size() != 1 && near == std::ranges::count_if(topology.numa_nodes(), has_cpus);
}

std::string numa_of(const Topology& topology, const Locality& numa) {
  if (is_anywhere(topology, numa)) return "unknown";
  std::vector<std::uint32_t> numbers;
  for (const std::uint32_t index : numa) numbers.push_back(topology.numa_nodes()[index].os_index);
  return fmt::format("{}{}", numbers.size() == 1 ? "" : "one of ", fmt::join(numbers, ", "));
}

/// The CPUs as text: "none" for an empty set, but "" if the source lists no CPUs at all.
std::string cpus_text(const Topology& topology, const CpuSet& cpus) {
  if (!cpus.empty()) return cpus.to_string();
  return std::ranges::any_of(topology.numa_nodes(), has_cpus) ? "none" : "";
}

/// The CPUs of the NUMA nodes that a device may be near; "" if they are unknown.
std::string cpus_near(const Topology& topology, const Locality& numa) {
  if (is_anywhere(topology, numa)) return "";
  CpuSet near;
  for (const std::uint32_t index : numa) {
    for (const auto& [first, last] : topology.numa_nodes()[index].cpus.ranges()) {
      near.add(first, last);
    }
  }
  return cpus_text(topology, near);
}

/// The addresses of the bridges above a function, nearest first.
std::string way_up(const Topology& topology, const PciDevice& pci) {
  std::string way;
  for (auto parent = pci.parent; parent && parent->kind == NodeKind::bridge;) {
    const PciDevice& bridge = topology.bridges()[parent->index].pci;
    way += (way.empty() ? "" : " ") + bridge.address.to_string();
    parent = bridge.parent;
  }
  return way.empty() ? "no bridge" : way;
}

Facts facts_of(const Topology& topology, const PciDevice& pci) {
  return {{"model", pci.model},
          {"link", pcie_text(pci.uplink)},
          {"NUMA node", numa_of(topology, pci.numa)},
          {"near CPUs", cpus_near(topology, pci.numa)},
          {"below", way_up(topology, pci)}};
}

std::string end_of(const Topology& topology, NodeRef node) {
  if (node.kind == NodeKind::package) return node.to_string();
  return topology.pci(node).address.to_string();
}

Things things_of(const Topology& topology) {
  Things things;
  Facts& machine = things["machine"];
  machine = {{"product", topology.machine().product},
             {"architecture", topology.machine().architecture},
             {"packages", std::to_string(topology.packages().size())}};
  for (const NumaNode& node : topology.numa_nodes()) {
    things[fmt::format("NUMA node {}", node.os_index)] = {{"CPUs", cpus_text(topology, node.cpus)}};
  }
  for (const Gpu& gpu : topology.gpus()) {
    Facts& facts = things["GPU at " + gpu.pci.address.to_string()];
    facts = facts_of(topology, gpu.pci);
    facts["model"] = gpu.model;
    facts["partitions"] = std::to_string(gpu.partitions.size());
  }
  for (const Nic& nic : topology.nics()) {
    Facts& facts =
        things["NIC " + (nic.is_virtual ? nic.name : "at " + nic.pci.address.to_string())];
    facts = facts_of(topology, nic.pci);
    facts["name"] = nic.name;
    for (const Port& port : nic.ports) {
      const std::string which = fmt::format("port {}:{}", port.device, port.number);
      facts[which + " state"] = name(port.state);
      facts[which + " rate"] = port.rate ? in_gigabits(*port.rate) : "";
      facts[which + " GID"] = gid_text(port);
    }
  }
  for (const NvSwitch& nvswitch : topology.nvswitches()) {
    things["NVSwitch at " + nvswitch.pci.address.to_string()] = facts_of(topology, nvswitch.pci);
  }
  for (const Bridge& bridge : topology.bridges()) {
    things[fmt::format("{}{}", kBridge, bridge.pci.address.to_string())] = {
        {"link", pcie_text(bridge.pci.uplink)}};
  }
  for (const Link& link : topology.links()) {
    const std::string ends = fmt::format("{} from {} to {}", name(link.kind),
                                         end_of(topology, link.a), end_of(topology, link.b));
    things[ends] = {
        {"links", link.rate.width ? std::to_string(*link.rate.width) : ""},
        {"bandwidth", link.rate.bandwidth ? format_bandwidth(*link.rate.bandwidth) : ""}};
  }
  return things;
}

}  // namespace

std::vector<TopologyDifference> diff(const Topology& a, const Topology& b) {
  const Things left = things_of(a), right = things_of(b);
  std::set<std::string> names;
  for (const auto& [thing, facts] : left) names.insert(thing);
  for (const auto& [thing, facts] : right) names.insert(thing);
  std::vector<TopologyDifference> differences;
  for (const std::string& thing : names) {
    const auto one = left.find(thing), other = right.find(thing);
    if (one == left.end() || other == right.end()) {
      // What is below a bridge says so: sources show different bridges of the same machine.
      if (thing.starts_with(kBridge)) continue;
      const bool is_left = one != left.end();
      differences.push_back({thing, "", is_left ? "here" : "absent", is_left ? "absent" : "here"});
      continue;
    }
    for (const auto& [fact, value] : one->second) {
      const auto counterpart = other->second.find(fact);
      // A fact that only one source contains does not distinguish the machines.
      if (counterpart == other->second.end() || value.empty() || counterpart->second.empty())
        continue;
      if (value != counterpart->second)
        differences.push_back({thing, fact, value, counterpart->second});
    }
  }
  return differences;
}

}  // namespace xylem::topology
