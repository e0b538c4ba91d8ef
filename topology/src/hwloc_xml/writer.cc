// SPDX-License-Identifier: Apache-2.0
//
// Writes a topology as hwloc's XML. Objects contain what hwloc's format can express; all other
// facts are added as JSON. To find these facts, the written objects are read back and compared with
// the topology.
#include "hwloc_xml/build.h"
#include "json_parts.h"
#include "places.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

namespace xylem::topology {
namespace hwloc_xml {
namespace {

void add_all(CpuSet& set, const CpuSet& more) {
  for (const CpuSet::Range& range : more.ranges()) set.add(range.first, range.last);
}

class Writer {
 public:
  explicit Writer(const Topology& topology) : topology_(topology) {}

  /// `parts` are the facts that objects cannot express; they are written as <info> elements.
  std::string write(const std::map<std::string, std::string>& parts) {
    document_.append_child(pugi::node_declaration).append_attribute("version") = "1.0";
    document_.append_child(pugi::node_doctype).set_value("topology SYSTEM \"hwloc2.dtd\"");
    pugi::xml_node root = document_.append_child("topology");
    root.append_attribute("version") = "2.0";
    add_machine(root, parts);
    add_distances(root, LinkKind::nvlink, "NVLinkBandwidth");
    add_distances(root, LinkKind::xgmi, "XGMIBandwidth");
    std::ostringstream text;
    document_.save(text, "  ");
    return text.str();
  }

 private:
  pugi::xml_node object(pugi::xml_node parent, const char* type) {
    pugi::xml_node node = parent.append_child("object");
    node.append_attribute("type") = type;
    node.append_attribute("gp_index") = ++last_index_;
    return node;
  }

  static void info(pugi::xml_node node, const std::string& name, const std::string& value) {
    if (value.empty()) return;
    pugi::xml_node info = node.append_child("info");
    info.append_attribute("name") = name.c_str();
    info.append_attribute("value") = value.c_str();
  }

  static void add_sets(pugi::xml_node node, const CpuSet& cpus, const CpuSet& nodes) {
    for (const char* name : {"cpuset", "complete_cpuset"}) {
      node.append_attribute(name) = cpus.to_bitmap().c_str();
    }
    for (const char* name : {"nodeset", "complete_nodeset"}) {
      node.append_attribute(name) = nodes.to_bitmap().c_str();
    }
  }

  /// Adds the number of a NUMA node to a set. Numbers too large for a set are written only as JSON.
  static void add_node(CpuSet& set, const NumaNode& node) {
    if (node.os_index <= kMaxCpu) set.add(node.os_index, node.os_index);
  }

  void add_machine(pugi::xml_node root, const std::map<std::string, std::string>& parts) {
    const Machine& machine = topology_.machine();
    CpuSet cpus, nodes;
    for (const Package& package : machine.packages) add_all(cpus, package.cpus);
    for (const NumaNode& node : machine.numa_nodes) {
      add_all(cpus, node.cpus);
      add_node(nodes, node);
    }
    pugi::xml_node node = object(root, "Machine");
    node.append_attribute("os_index") = 0;
    add_sets(node, cpus, nodes);
    node.append_attribute("allowed_cpuset") = cpus.to_bitmap().c_str();
    node.append_attribute("allowed_nodeset") = nodes.to_bitmap().c_str();
    info(node, "HostName", machine.host);
    info(node, "DMIProductName", machine.product);
    info(node, "Architecture", machine.architecture);
    for (const auto& [name, json] : parts) info(node, std::string(kOwnPrefix) + name, json);
    const Place host = places_of(topology_, Folding::nothing);
    // hwloc requires objects with CPUs before devices.
    for (const Place& place : host.children) {
      if (place.node) this->place(node, place);
    }
    add_cpus(node, cpus);
    for (const Place& place : host.children) {
      if (!place.node) devices(node, place);
    }
    for (const NetInterface& interface : machine.interfaces) {
      if (!interface.nic) os_device(node, interface.name, kNetwork);
    }
  }

  void place(pugi::xml_node parent, const Place& place) {
    if (!place.node) return;
    if (place.node->kind == NodeKind::package) {
      add_package(parent, place, place.node->index);
    } else if (place.node->kind == NodeKind::numa_node) {
      add_numa_node(parent, place, topology_.numa_nodes()[place.node->index]);
    }
  }

  void add_package(pugi::xml_node parent, const Place& place, std::uint32_t index) {
    const Package& package = topology_.packages()[index];
    CpuSet nodes;
    for (const Place& child : place.children) {
      if (child.node && child.node->kind == NodeKind::numa_node) {
        add_node(nodes, topology_.numa_nodes()[child.node->index]);
      }
    }
    pugi::xml_node node = object(parent, "Package");
    node.append_attribute("os_index") = package.os_index;
    add_sets(node, package.cpus, nodes);
    info(node, "CPUModel", package.cpu_model);
    indices_[{NodeKind::package, index}] = last_index_;
    for (const Place& child : place.children) {
      if (child.node && child.node->kind == NodeKind::numa_node) this->place(node, child);
    }
    add_cpus(node, package.cpus);
    devices(node, place);
  }

  /// Writes a NUMA node with its memory, CPUs and devices. If the node has CPUs, all of these are
  /// inside a Group object.
  void add_numa_node(pugi::xml_node parent, const Place& place, const NumaNode& numa) {
    CpuSet nodes;
    add_node(nodes, numa);
    pugi::xml_node group = parent;
    if (!numa.cpus.empty()) {
      group = object(parent, "Group");
      add_sets(group, numa.cpus, nodes);
      group.append_attribute("kind") = 0;
      group.append_attribute("subkind") = 0;
    }
    if (numbers_.insert(numa.os_index).second) {
      pugi::xml_node node = object(group, "NUMANode");
      node.append_attribute("os_index") = numa.os_index;
      add_sets(node, numa.cpus, nodes);
      node.append_attribute("local_memory") = numa.memory.value;
    }
    add_cpus(group, numa.cpus);
    devices(group, place);
  }

  /// Writes each CPU once, in the smallest object that contains it.
  void add_cpus(pugi::xml_node parent, const CpuSet& cpus) {
    for (const CpuSet::Range& range : cpus.ranges()) {
      for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) {
        if (written_cpus_.contains(cpu)) continue;
        written_cpus_.add(cpu, cpu);
        CpuSet one, nodes;
        one.add(cpu, cpu);
        for (const NumaNode& node : topology_.numa_nodes()) {
          if (node.cpus.contains(cpu)) add_node(nodes, node);
        }
        pugi::xml_node node = object(parent, "PU");
        node.append_attribute("os_index") = cpu;
        add_sets(node, one, nodes);
      }
    }
  }

  /// Writes the PCIe trees attached to `place`. Their depth is limited by kMaxBridgeDepth.
  void devices(pugi::xml_node parent, const Place& place) {
    for (const Place& child : place.children) {
      if (!child.node) continue;
      const std::uint32_t index = child.node->index;
      switch (child.node->kind) {
        case NodeKind::host_bridge:
          host_bridge(parent, child, topology_.host_bridges()[index]);
          break;
        case NodeKind::bridge: bridge(parent, child, topology_.bridges()[index]); break;
        case NodeKind::gpu: gpu(parent, index); break;
        case NodeKind::nic: nic(parent, index); break;
        case NodeKind::nvswitch: nvswitch(parent, index); break;
        case NodeKind::numa_node:
        case NodeKind::package: break;
      }
    }
  }

  void host_bridge(pugi::xml_node parent, const Place& place, const HostBridge& bridge) {
    pugi::xml_node node = object(parent, "Bridge");
    node.append_attribute("bridge_type") = "0-1";
    node.append_attribute("depth") = 0;
    node.append_attribute("bridge_pci") =
        fmt::format("{:04x}:[{:02x}-{:02x}]", bridge.domain, bridge.first_bus, bridge.last_bus)
            .c_str();
    devices(node, place);
  }

  void bridge(pugi::xml_node parent, const Place& place, const Bridge& bridge) {
    pugi::xml_node node = object(parent, "Bridge");
    node.append_attribute("bridge_type") = "1-1";
    const unsigned above =
        parent.attribute("bridge_type") ? parent.attribute("depth").as_uint() : 0;
    node.append_attribute("depth") = above + 1;
    const auto [first, last] = std::minmax(bridge.first_bus, bridge.last_bus);
    node.append_attribute("bridge_pci") =
        fmt::format("{:04x}:[{:02x}-{:02x}]", bridge.pci.address.domain, first, last).c_str();
    function(node, bridge.pci);
    devices(node, place);
  }

  static void function(pugi::xml_node node, const PciDevice& pci) {
    node.append_attribute("pci_busid") = pci.address.to_string().c_str();
    node.append_attribute("pci_type") =
        fmt::format("{:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] 00", pci.pci_class, pci.id.vendor,
                    pci.id.device, pci.id.subsystem_vendor, pci.id.subsystem_device)
            .c_str();
    node.append_attribute("pci_link_speed") =
        fmt::format("{}", pci.uplink.bandwidth.value_or(GBps{}).value).c_str();
    info(node, "PCIVendor", pci.vendor);
    info(node, "PCIDevice", pci.model);
  }

  pugi::xml_node device(pugi::xml_node parent, NodeRef ref) {
    pugi::xml_node node = object(parent, "PCIDev");
    indices_[ref] = last_index_;
    function(node, topology_.pci(ref));
    return node;
  }

  static constexpr int kGpu = 1, kNetwork = 2, kOpenFabrics = 3;

  pugi::xml_node os_device(pugi::xml_node parent, const std::string& name, int type) {
    if (name.empty()) return {};
    pugi::xml_node node = object(parent, "OSDev");
    node.append_attribute("name") = name.c_str();
    node.append_attribute("osdev_type") = type;
    return node;
  }

  void gpu(pugi::xml_node parent, std::uint32_t index) {
    const Gpu& gpu = topology_.gpus()[index];
    const pugi::xml_node node = device(parent, {NodeKind::gpu, index});
    for (const std::string& name : gpu.os_names) {
      const pugi::xml_node os = os_device(node, name, kGpu);
      if (gpu.model != gpu.pci.model) info(os, "GPUModel", gpu.model);
      info(os, gpu.pci.id.vendor == kVendorAmd ? "AMDUUID" : "NVIDIAUUID", gpu.uuid);
    }
  }

  void nic(pugi::xml_node parent, std::uint32_t index) {
    const Nic& nic = topology_.nics()[index];
    if (nic.is_virtual) return;
    const pugi::xml_node node = device(parent, {NodeKind::nic, index});
    for (const NetInterface& interface : topology_.interfaces()) {
      if (interface.nic == index) os_device(node, interface.name, kNetwork);
    }
    pugi::xml_node os;
    for (const Port& port : nic.ports) {
      if (!os || port.device != os.attribute("name").value()) {
        os = os_device(node, port.device, kOpenFabrics);
      }
      // ibv_port_state begins with "nop" and PortState with "unknown", so their values agree.
      if (port.state == PortState::unknown && port.number == 1) continue;
      info(os, fmt::format("Port{}State", port.number),
           std::to_string(static_cast<unsigned>(port.state)));
    }
  }

  void nvswitch(pugi::xml_node parent, std::uint32_t index) {
    device(parent, {NodeKind::nvswitch, index}).append_attribute("subtype") = "NVSwitch";
  }

  static const char* type_of(NodeRef node) {
    return node.kind == NodeKind::package ? "Package" : "PCIDev";
  }

  /// A matrix in MB/s between all ends of links of one kind.
  void add_distances(pugi::xml_node root, LinkKind kind, const char* name) {
    std::set<NodeRef> found;
    for (const Link& link : topology_.links()) {
      const bool is_written = indices_.contains(link.a) && indices_.contains(link.b);
      if (link.kind == kind && link.rate.bandwidth && is_written) found.insert({link.a, link.b});
    }
    if (found.empty() || found.size() > kMostEnds) return;
    const std::vector<NodeRef> ends(found.begin(), found.end());
    std::map<std::pair<NodeRef, NodeRef>, std::uint64_t> megabytes;
    for (const Link& link : topology_.links()) {
      if (link.kind != kind || !link.rate.bandwidth) continue;
      const auto value =
          static_cast<std::uint64_t>(std::llround(link.rate.bandwidth->value * 1000));
      megabytes[{link.a, link.b}] = megabytes[{link.b, link.a}] = value;
    }
    std::string indexes, values;
    for (const NodeRef a : ends) {
      indexes += fmt::format("{}:{} ", type_of(a), indices_.at(a));
      for (const NodeRef b : ends) {
        const auto at = megabytes.find({a, b});
        values += fmt::format("{} ", at == megabytes.end() ? 0 : at->second);
      }
    }
    // The flags mean: reported by the system; bandwidths; objects of several types.
    constexpr int kKind = 1 | 8 | 16;
    pugi::xml_node node = root.append_child("distances2hetero");
    node.append_attribute("nbobjs") = ends.size();
    node.append_attribute("kind") = kKind;
    node.append_attribute("name") = name;
    for (const auto& [tag, text] :
         {std::pair("indexes", &indexes), std::pair("u64values", &values)}) {
      pugi::xml_node list = node.append_child(tag);
      list.append_attribute("length") = text->size();
      list.text().set(text->c_str());
    }
  }

  /// The largest number of ends in a matrix, since the reader refuses larger matrices. If there are
  /// more ends, the links are written only as JSON.
  static constexpr std::size_t kMostEnds = 1024;

  const Topology& topology_;
  pugi::xml_document document_;
  std::uint64_t last_index_ = 0;
  std::map<NodeRef, std::uint64_t> indices_;  ///< gp_index of the nodes that can be ends of links.
  std::set<std::uint32_t> numbers_;           ///< Numbers of the NUMA nodes written so far.
  CpuSet written_cpus_;
};

}  // namespace
}  // namespace hwloc_xml

std::string to_hwloc_xml(const Topology& topology) {
  const auto all = json_parts(topology.machine());
  std::string plain = hwloc_xml::Writer(topology).write({});
  const auto machine = hwloc_xml::read_machine(plain, "written");
  const auto read = machine ? json_parts(*machine) : std::map<std::string, std::string>();
  if (machine && *machine == topology.machine()) return plain;
  auto parts = all;
  for (const auto& [key, json] : read) {
    const auto found = parts.find(key);
    if (found == parts.end()) {
      parts[key] = json.starts_with('[') ? "[]" : "\"\"";
    } else if (found->second == json) {
      parts.erase(found);
    }
  }
  return hwloc_xml::Writer(topology).write(parts);
}

}  // namespace xylem::topology
