// SPDX-License-Identifier: Apache-2.0
//
// Writes the tree for people. TreeWriter builds a tree of labels, and print() draws its branches.
#include "places.h"
#include "words.h"
#include "xylem/topology/rings.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace xylem::topology {
namespace {

struct Branch {
  std::string label;
  std::vector<Branch> children;
};

void print(const Branch& branch, const std::string& indent, bool ascii, std::string& text) {
  for (std::size_t i = 0; i < branch.children.size(); ++i) {
    const bool last = i + 1 == branch.children.size();
    const char* fork = ascii ? (last ? "`- " : "|- ") : (last ? "└─ " : "├─ ");
    const char* stem = last ? "   " : (ascii ? "|  " : "│  ");
    text += indent + fork + branch.children[i].label + '\n';
    print(branch.children[i], indent + stem, ascii, text);
  }
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

/// Appends `part`, unless it is empty, after a comma.
void append(std::string& label, const std::string& part) {
  if (!part.empty()) label += ", " + part;
}

std::string numa_names(const Topology& topology, const Locality& numa) {
  std::vector<std::uint32_t> names;
  for (const std::uint32_t node : numa) names.push_back(topology.numa_nodes()[node].os_index);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Builds the labels of one topology.
class TreeWriter {
 public:
  explicit TreeWriter(const Topology& topology)
      : topology_(topology), nic_numbers_(nic_numbers(topology)) {}

  Branch host() const {
    const Machine& machine = topology_.machine();
    Branch root;
    root.label = machine.host.empty() ? "host" : machine.host;
    append(root.label, machine.product);
    append(root.label, machine.architecture);
    for (const Place& place : places_of(topology_).children) root.children.push_back(branch(place));
    add_interfaces(root);
    if (machine.gpus.empty() && machine.nics.empty()) {
      root.children.push_back({"no GPU and no NIC found", {}});
    }
    add_rings(root);
    add_driver(root);
    return root;
  }

 private:
  Branch branch(const Place& place) const {
    Branch branch{place.node ? label(*place.node) : "place unknown", {}};
    for (const Place& child : place.children) branch.children.push_back(this->branch(child));
    if (place.node && place.node->kind == NodeKind::gpu) add_gpu_details(branch, place.node->index);
    if (place.node && place.node->kind == NodeKind::nic) add_nic_details(branch, place.node->index);
    return branch;
  }

  std::string package_label(const Package& package) const {
    std::string label = fmt::format("package {}", package.os_index);
    append(label, package.cpu_model);
    if (package.cores) append(label, counted(*package.cores, "core"));
    if (!package.cpus.empty()) append(label, counted(package.cpus.count(), "CPU"));
    return label;
  }

  std::string numa_label(const NumaNode& node) const {
    std::string label = fmt::format("NUMA node {}", node.os_index);
    if (node.cores) append(label, counted(*node.cores, "core"));
    if (!node.cpus.empty()) append(label, fmt::format("CPUs {}", node.cpus.to_string()));
    append(label, memory_text(node));
    if (node.implied) append(label, "the whole host");
    return label;
  }

  std::string label(NodeRef node) const {
    switch (node.kind) {
      case NodeKind::host_bridge: return host_bridge_label(topology_.host_bridges()[node.index]);
      case NodeKind::bridge: return bridge_label(topology_.bridges()[node.index]);
      case NodeKind::gpu: return gpu_label(node.index);
      case NodeKind::nic: return nic_label(node.index);
      case NodeKind::nvswitch: return fmt::format("NVSwitch{} {}", node.index, address(node));
      case NodeKind::numa_node: return numa_label(topology_.numa_nodes()[node.index]);
      case NodeKind::package: return package_label(topology_.packages()[node.index]);
    }
    return node.to_string();
  }

  std::string address(NodeRef node) const { return topology_.pci(node).address.to_string(); }

  std::string host_bridge_label(const HostBridge& bridge) const {
    if (bridge.implied) return "host bridges, not distinguished";
    std::string label = fmt::format("host bridge {:04x}:[{:02x}-{:02x}]", bridge.domain,
                                    bridge.first_bus, bridge.last_bus);
    if (bridge.numa.size() > 1) {
      append(label, fmt::format("near one of NUMA nodes {}", numa_names(topology_, bridge.numa)));
    }
    return label;
  }

  static std::string bridge_label(const Bridge& bridge) {
    const bool is_switch =
        bridge.is_switch || (bridge.pci.parent && bridge.pci.parent->kind == NodeKind::bridge);
    std::string label =
        fmt::format("{} {}", is_switch ? "switch" : "root port", bridge.pci.address.to_string());
    append(label, bridge.pci.model);
    return label;
  }

  std::string gpu_label(std::uint32_t index) const {
    const Gpu& gpu = topology_.gpus()[index];
    std::string label = fmt::format("GPU{}", index);
    if (!gpu.model.empty()) label += ' ' + gpu.model;
    append(label, gpu.pci.address.to_string());
    append(label, pcie_text(gpu.pci.uplink));
    const auto lanes = gpu.pci.uplink.width;
    if (lanes && gpu.pcie_lanes && *lanes < *gpu.pcie_lanes) {
      label += fmt::format(" (it and its slot support x{})", *gpu.pcie_lanes);
    }
    append(label, memory_text(gpu));
    const NearestNics nearest = nearest_nics(topology_, index);
    // Across NUMA nodes every NIC is equally near, so none is mentioned.
    if (!nearest.nics.empty() && nearest.path_class < PathClass::sys) {
      std::vector<std::string> names;
      names.reserve(nearest.nics.size());
      for (const std::uint32_t nic : nearest.nics) names.push_back(topology_.nics()[nic].name);
      append(label, fmt::format("nearest {} ({})", fmt::join(names, " "),
                                cell_of(pci_path(topology_, {NodeKind::gpu, index},
                                                 {NodeKind::nic, nearest.nics.front()}))));
    }
    return label;
  }

  void add_gpu_details(Branch& branch, std::uint32_t index) const {
    const Gpu& gpu = topology_.gpus()[index];
    if (!gpu.partitions.empty()) {
      branch.children.push_back({fmt::format("split in {} partitions", gpu.partitions.size()), {}});
    }
    std::map<LinkKind, std::vector<std::string>> peers;
    std::uint32_t switches = 0;
    double to_switches = 0;
    for (const Link& link : topology_.links()) {
      const NodeRef self{NodeKind::gpu, index};
      if (link.a != self && link.b != self) continue;
      const NodeRef peer = link.a == self ? link.b : link.a;
      if (peer.kind == NodeKind::nvswitch) {
        ++switches;
        to_switches += link.rate.bandwidth.value_or(GBps{}).value;
        continue;
      }
      std::string text = peer.kind == NodeKind::gpu ? fmt::format("GPU{}", peer.index) : "CPU";
      if (link.rate.bandwidth) text += ' ' + format_bandwidth(*link.rate.bandwidth);
      peers[link.kind].push_back(std::move(text));
    }
    if (switches > 0) {
      std::string text = fmt::format("{} NVSwitch{}", switches, switches == 1 ? "" : "es");
      if (to_switches > 0) text += ' ' + format_bandwidth(GBps{to_switches});
      peers[LinkKind::nvlink].push_back(std::move(text));
    }
    const std::uint32_t down = gpu.nvlinks_down.value_or(0);
    if (down > 0 && !peers.empty()) {
      branch.children.push_back({counted(down, "NVLink") + " not up", {}});
    }
    for (const auto& [kind, texts] : peers) {
      branch.children.push_back({fmt::format("{} to {}", kind == LinkKind::xgmi ? "XGMI" : "NVLink",
                                             fmt::join(texts, ", ")),
                                 {}});
    }
  }

  std::string nic_label(std::uint32_t index) const {
    const Nic& nic = topology_.nics()[index];
    const std::optional<std::uint32_t>& number = nic_numbers_[index];
    std::string label = number ? fmt::format("NIC{} {}", *number, nic.name) : nic.name;
    append(label, nic.pci.model);
    if (!nic.is_virtual && nic.name != nic.pci.address.to_string())
      append(label, nic.pci.address.to_string());
    append(label, pcie_text(nic.pci.uplink));
    if (nic.physical_function) {
      append(label, fmt::format("virtual function of {}", nic.physical_function->to_string()));
    }
    return label;
  }

  void add_nic_details(Branch& branch, std::uint32_t index) const {
    for (const Port& port : topology_.nics()[index].ports) {
      std::string label = fmt::format("port {}:{}", port.device, port.number);
      append(label,
             port.state == PortState::unknown ? "state unknown" : std::string(name(port.state)));
      if (port.link_layer == LinkLayer::infiniband) append(label, "InfiniBand");
      if (port.link_layer == LinkLayer::ethernet) append(label, "Ethernet");
      if (port.rate) append(label, in_gigabits(*port.rate));
      append(label, gid_text(port));
      append(label, port.interface.empty() ? "" : "on " + port.interface);
      branch.children.push_back({std::move(label), {}});
    }
    for (const NetInterface& interface : topology_.interfaces()) {
      if (interface.nic == index) branch.children.push_back({interface_label(interface), {}});
    }
  }

  static std::string interface_label(const NetInterface& interface) {
    std::string label = fmt::format("interface {}", interface.name);
    switch (interface.kind) {
      case InterfaceKind::physical: break;
      case InterfaceKind::other_virtual: append(label, "virtual"); break;
      default: append(label, std::string(name(interface.kind))); break;
    }
    if (interface.state != InterfaceState::unknown)
      append(label, std::string(name(interface.state)));
    if (interface.rate) append(label, in_gigabits(*interface.rate));
    if (interface.mtu) append(label, fmt::format("MTU {}", *interface.mtu));
    append(label, interface.driver);
    append(label, interface.bond.empty() ? "" : "in " + interface.bond);
    return label;
  }

  void add_interfaces(Branch& root) const {
    for (const NetInterface& interface : topology_.interfaces()) {
      if (!interface.nic) root.children.push_back({interface_label(interface), {}});
    }
  }

  void add_rings(Branch& root) const {
    const RingPlan plan = plan_rings(topology_);
    if (plan.fabric == GpuFabric::none) return;
    Branch rings{ring_text(topology_, plan, bandwidth_bounds(topology_)), {}};
    for (const Ring& ring : plan.channels) {
      rings.children.push_back({fmt::format("GPU{}", fmt::join(ring.gpus, " GPU")), {}});
    }
    root.children.push_back(std::move(rings));
  }

  void add_driver(Branch& root) const {
    const auto lines = driver_lines(topology_);
    if (lines.empty()) return;
    Branch branch{lines.front(), {}};
    for (std::size_t i = 1; i < lines.size(); ++i) branch.children.push_back({lines[i], {}});
    root.children.push_back(std::move(branch));
  }

  const Topology& topology_;
  std::vector<std::optional<std::uint32_t>> nic_numbers_;
};

}  // namespace

std::string to_tree(const Topology& topology, const TreeOptions& options) {
  const Branch host = TreeWriter(topology).host();
  std::string text = host.label + '\n';
  print(host, "", options.ascii, text);
  return text;
}

}  // namespace xylem::topology
