// SPDX-License-Identifier: Apache-2.0
//
// Checks the facts of a Machine before it becomes a Topology.
#include "xylem/topology/topology.h"

#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <ranges>
#include <utility>

namespace xylem::topology {
namespace {

/// Checks one machine. Every function returns OK, or an error for the first fact that breaks a
/// rule.
class Checker {
 public:
  explicit Checker(const Machine& machine) : machine_(machine) {}

  Status check() const {
    XYLEM_TRY(check_counts());
    XYLEM_TRY(check_processors());
    for (std::size_t i = 0; i < machine_.host_bridges.size(); ++i) {
      const HostBridge& bridge = machine_.host_bridges[i];
      const std::string what = fmt::format("host bridge {}", i);
      if (bridge.first_bus > bridge.last_bus)
        return wrong(what, "its first bus is beyond its last");
      XYLEM_TRY(check_locality(bridge.numa, what));
    }
    XYLEM_TRY(check_devices(machine_.bridges, NodeKind::bridge));
    XYLEM_TRY(check_devices(machine_.gpus, NodeKind::gpu));
    XYLEM_TRY(check_devices(machine_.nics, NodeKind::nic));
    XYLEM_TRY(check_virtual_nics());
    XYLEM_TRY(check_devices(machine_.nvswitches, NodeKind::nvswitch));
    XYLEM_TRY(check_tree_depth());
    XYLEM_TRY(check_network());
    XYLEM_TRY(check_gpus());
    return check_links();
  }

 private:
  static Status wrong(const std::string& what, const std::string& rule) {
    return failure(Code::invalid_argument, fmt::format("{}: {}", what, rule));
  }

  Status check_counts() const {
    struct Count {
      const char* what;
      std::size_t count;
      std::size_t limit;
    };
    for (const auto& [what, count, limit] : {
             Count{"packages", machine_.packages.size(), kMaxPackages},
             Count{"NUMA nodes", machine_.numa_nodes.size(), kMaxNumaNodes},
             Count{"host bridges", machine_.host_bridges.size(), kMaxBridges},
             Count{"bridges", machine_.bridges.size(), kMaxBridges},
             Count{"GPUs", machine_.gpus.size(), kMaxGpus},
             Count{"NICs", machine_.nics.size(), kMaxNics},
             Count{"NVSwitches", machine_.nvswitches.size(), kMaxNvSwitches},
             Count{"interfaces", machine_.interfaces.size(), kMaxInterfaces},
             Count{"links", machine_.links.size(), kMaxLinks},
             Count{"pairs of GPUs", machine_.gpu_pairs.size(), kMaxGpuPairs},
         }) {
      if (count > limit) {
        return wrong("machine",
                     fmt::format("{} {} are more than the {} a host may have", count, what, limit));
      }
    }
    if (machine_.numa_nodes.empty()) return wrong("machine", "it has no NUMA node");
    return Status::ok();
  }

  Status check_processors() const {
    for (std::size_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      const auto& package = machine_.numa_nodes[i].package;
      if (package && *package >= machine_.packages.size()) {
        return wrong(fmt::format("NUMA node {}", i),
                     fmt::format("there is no package {}", *package));
      }
    }
    return Status::ok();
  }

  Status check_locality(const Locality& numa, const std::string& what) const {
    if (numa.empty())
      return wrong(what, "it is near no NUMA node; list all if its place is unknown");
    for (std::size_t i = 0; i < numa.size(); ++i) {
      if (numa[i] >= machine_.numa_nodes.size()) {
        return wrong(what, fmt::format("there is no NUMA node of index {}", numa[i]));
      }
      if (i > 0 && numa[i - 1] >= numa[i]) return wrong(what, "its NUMA nodes do not ascend");
    }
    return Status::ok();
  }

  static Status check_rate(const Rate& rate, const std::string& what) {
    const auto good = [](double value) { return std::isfinite(value) && value > 0; };
    if ((rate.bandwidth && !good(rate.bandwidth->value)) || (rate.speed && !good(*rate.speed)) ||
        (rate.width && *rate.width == 0)) {
      return wrong(what, "a rate that is known is finite and above zero; leave it out if unknown");
    }
    if (rate.bandwidth && (*rate.bandwidth < kLeastBandwidth || *rate.bandwidth > kMostBandwidth)) {
      return wrong(what,
                   fmt::format("a bandwidth of {} GB/s is not between {} and {}",
                               rate.bandwidth->value, kLeastBandwidth.value, kMostBandwidth.value));
    }
    if (rate.bandwidth.has_value() == (rate.origin == Origin::unknown)) {
      return wrong(what, "a bandwidth has an origin, and only a bandwidth has");
    }
    return Status::ok();
  }

  template <typename Device>
  static bool in_order(const Device& before, const Device& after) {
    return before.pci.address < after.pci.address;
  }
  /// Whether `before` may precede `after`. NICs without an address come last, ordered by name.
  static bool in_order(const Nic& before, const Nic& after) {
    if (before.is_virtual != after.is_virtual) return after.is_virtual;
    return before.is_virtual ? before.name < after.name : before.pci.address < after.pci.address;
  }

  Status check_virtual_nics() const {
    for (const Nic& nic : machine_.nics) {
      if (nic.is_virtual && nic.pci.address != PciAddress{})
        return wrong(nic.name, "a virtual NIC has no PCI address");
    }
    return Status::ok();
  }

  template <typename Device>
  Status check_devices(const std::vector<Device>& devices, NodeKind kind) const {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const PciDevice& pci = devices[i].pci;
      const std::string what = fmt::format("{}{} ({})", name(kind), i, pci.address.to_string());
      if (i > 0 && !in_order(devices[i - 1], devices[i])) {
        return wrong(what, "devices of a kind are in the order of their PCI addresses, each once");
      }
      if (pci.parent && !is_bridge(*pci.parent)) {
        return wrong(what, fmt::format("its parent {} is no bridge here", pci.parent->to_string()));
      }
      XYLEM_TRY(check_locality(pci.numa, what));
      XYLEM_TRY(check_rate(pci.uplink, what));
    }
    return Status::ok();
  }

  bool is_bridge(NodeRef node) const {
    return (node.kind == NodeKind::bridge && node.index < machine_.bridges.size()) ||
           (node.kind == NodeKind::host_bridge && node.index < machine_.host_bridges.size());
  }

  /// Computes the depth of all bridges in one pass. A chain longer than the number of possible
  /// buses is a cycle or equally invalid.
  Status check_tree_depth() const {
    std::vector<std::uint16_t> depths(machine_.bridges.size(), 0);
    std::vector<std::uint32_t> chain;
    for (std::uint32_t i = 0; i < depths.size(); ++i) {
      chain.clear();
      std::optional<NodeRef> at = NodeRef{NodeKind::bridge, i};
      while (at && at->kind == NodeKind::bridge && depths[at->index] == 0) {
        if (chain.size() >= kMaxBridgeDepth) return too_deep(i);
        chain.push_back(at->index);
        at = machine_.bridges[at->index].pci.parent;
      }
      std::size_t depth = at && at->kind == NodeKind::bridge ? depths[at->index] : 0;
      for (const std::uint32_t link : chain | std::views::reverse) {
        if (++depth > kMaxBridgeDepth) return too_deep(link);
        depths[link] = static_cast<std::uint16_t>(depth);
      }
    }
    return Status::ok();
  }

  static Status too_deep(std::uint32_t bridge) {
    return wrong(fmt::format("bridge{}", bridge),
                 fmt::format("more than {} bridges above it, or a cycle", kMaxBridgeDepth));
  }

  Status check_network() const {
    for (const Nic& nic : machine_.nics) {
      for (const Port& port : nic.ports) {
        if (port.rate) XYLEM_TRY(check_rate({port.rate, Origin::read, {}, {}}, nic.name));
        const auto not_after =
            std::ranges::adjacent_find(port.gids, std::ranges::greater_equal(), &Gid::index);
        if (not_after != port.gids.end()) {
          return wrong(fmt::format("port {}:{}", port.device, port.number),
                       fmt::format("GIDs are in the order of their indices, each once; {} is not",
                                   std::next(not_after)->index));
        }
      }
    }
    for (std::size_t i = 0; i < machine_.interfaces.size(); ++i) {
      const NetInterface& interface = machine_.interfaces[i];
      const std::string what = fmt::format("interface {}", interface.name);
      if (i > 0 && machine_.interfaces[i - 1].name >= interface.name) {
        return wrong(what, "interfaces are in the order of their names, each once");
      }
      if (interface.nic && *interface.nic >= machine_.nics.size()) {
        return wrong(what, fmt::format("there is no NIC of index {}", *interface.nic));
      }
      if (interface.rate) XYLEM_TRY(check_rate({interface.rate, Origin::read, {}, {}}, what));
    }
    return Status::ok();
  }

  Status check_gpus() const {
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
      XYLEM_TRY(check_rate(machine_.gpus[i].memory_rate, fmt::format("the memory of gpu{}", i)));
    }
    const auto key = [](const GpuPair& pair) { return std::pair(pair.a, pair.b); };
    for (std::size_t i = 0; i < machine_.gpu_pairs.size(); ++i) {
      const GpuPair& pair = machine_.gpu_pairs[i];
      const std::string what = fmt::format("pair {} (gpu{} and gpu{})", i, pair.a, pair.b);
      if (pair.a >= pair.b || pair.b >= machine_.gpus.size()) {
        return wrong(what, "a pair names two GPUs that exist, the lower index first");
      }
      if (i > 0 && key(machine_.gpu_pairs[i - 1]) >= key(pair)) {
        return wrong(what, "pairs are in order of their GPUs, each once");
      }
    }
    return Status::ok();
  }

  bool can_link(NodeRef node) const {
    switch (node.kind) {
      case NodeKind::gpu: return node.index < machine_.gpus.size();
      case NodeKind::nvswitch: return node.index < machine_.nvswitches.size();
      case NodeKind::package: return node.index < machine_.packages.size();
      default: return false;
    }
  }

  Status check_links() const {
    const auto key = [](const Link& link) { return std::tuple(link.a, link.b, link.kind); };
    for (std::size_t i = 0; i < machine_.links.size(); ++i) {
      const Link& link = machine_.links[i];
      const std::string what =
          fmt::format("link {} ({} to {})", i, link.a.to_string(), link.b.to_string());
      if (!can_link(link.a) || !can_link(link.b)) {
        return wrong(what, "links join GPUs, NVSwitches and packages that exist");
      }
      if (link.a >= link.b) return wrong(what, "its first end comes before its second");
      if (link.kind == LinkKind::pcie)
        return wrong(what, "PCIe links are given by uplinks, not by links");
      if (i > 0 && key(machine_.links[i - 1]) >= key(link)) {
        return wrong(what, "links are in order of their ends and kind, each once");
      }
      XYLEM_TRY(check_rate(link.rate, what));
    }
    return Status::ok();
  }

  const Machine& machine_;
};

}  // namespace

Topology::Topology(Machine machine)
    : machine_(std::make_shared<const Machine>(std::move(machine))) {}

Result<Topology> Topology::create(Machine machine) {
  XYLEM_TRY(Checker(machine).check());
  return Topology(std::move(machine));
}

std::vector<std::uint32_t> Topology::fabric_nics() const {
  std::vector<std::uint32_t> fabric;
  for (std::uint32_t i = 0; i < nics().size(); ++i) {
    if (nics()[i].fabric) fabric.push_back(i);
  }
  if (fabric.empty()) {
    fabric.resize(nics().size());
    std::iota(fabric.begin(), fabric.end(), 0U);
  }
  return fabric;
}

const PciDevice& Topology::pci(NodeRef node) const {
  const auto in = [&](const auto& devices) -> const PciDevice& {
    XYLEM_CHECK(node.index < devices.size(), node.to_string());
    return devices[node.index].pci;
  };
  switch (node.kind) {
    case NodeKind::gpu: return in(gpus());
    case NodeKind::nic: return in(nics());
    case NodeKind::nvswitch: return in(nvswitches());
    case NodeKind::bridge: return in(bridges());
    case NodeKind::host_bridge:
    case NodeKind::numa_node:
    case NodeKind::package: break;
  }
  XYLEM_CHECK(false && "not a PCI function", node.to_string());
  __builtin_unreachable();
}

}  // namespace xylem::topology
