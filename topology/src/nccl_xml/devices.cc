// SPDX-License-Identifier: Apache-2.0
//
// Decides which functions below each <cpu> are switches, GPUs and NICs.
#include "nccl_xml/build.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace xylem::topology::nccl_xml {
namespace {

/// NCCL writes one <pci> for all functions of a card, so its <net> elements become functions 0, 1,
/// …
constexpr std::size_t kMostFunctions = 8;

/// More functions than Topology::create() accepts.
constexpr std::size_t kMostFound = kMaxBridges + kMaxGpus + kMaxNics;

/// The port number of a device of verbs or libfabric; nothing for a socket, which has no port.
std::optional<std::uint32_t> port_of(pugi::xml_node net) {
  const auto port = parse_number<std::uint32_t>(net.attribute("port").value());
  return port.value_or(0) == 0 ? std::nullopt : port;
}

/// "sm_90" or "gfx942"; empty in a template.
std::string architecture_of(pugi::xml_node gpu) {
  std::string gcn = clean_text(gpu.attribute("gcn").value());
  if (!gcn.empty()) return gcn.starts_with(kGcnPrefix) ? gcn : std::string(kGcnPrefix) + gcn;
  const std::string sm = clean_text(gpu.attribute("sm").value());
  return sm.empty() ? sm : std::string(kCudaPrefix) + sm;
}

std::optional<GBps> rate_of(pugi::xml_node net) {
  const auto megabits = parse_number<std::uint32_t>(net.attribute("speed").value()).value_or(0);
  if (megabits == 0) return std::nullopt;
  return GBps{megabits / kMegabitsPerGigabyte};
}

/// Visits the elements below one <cpu>.
class Reader {
 public:
  Reader(Build& build, std::uint32_t numa) : build_(build), numa_(numa) {}

  Status below(pugi::xml_node parent, std::optional<std::size_t> above, std::size_t depth) {
    if (depth > kMaxBridgeDepth) {
      return build_.xml.error(parent,
                              fmt::format("more than {} bridges above it", kMaxBridgeDepth));
    }
    for (const pugi::xml_node node : parent.children()) {
      const std::string_view tag = node.name();
      if (tag == "pci") XYLEM_TRY(function(node, above, depth));
      // A device without a PCI function of its own: a socket over a virtual interface.
      if (tag == "nic") XYLEM_TRY(virtual_nics(node));
    }
    return Status::ok();
  }

 private:
  Status function(pugi::xml_node node, std::optional<std::size_t> above, std::size_t depth) {
    if (build_.switches.size() + build_.gpus.size() + build_.nics.size() > kMostFound) {
      return build_.xml.error(node,
                              fmt::format("more than {} PCI functions: not a machine", kMostFound));
    }
    XYLEM_TRY(PciDevice pci, read_function(node));
    if (node.child("gpu")) {
      build_.gpus.push_back({node, std::move(pci), above});
      return Status::ok();
    }
    const bool is_bridge = pci.pci_class == kPciBridge;
    if (node.child("nic") && is_bridge) {
      // A bridge above a NIC whose own function the file does not name. It gets the next number.
      PciDevice nic = pci;
      nic.pci_class = std::uint16_t{kClassNetwork} << 8;
      nic.id = {};
      ++nic.address.function;
      const std::size_t place = build_.switches.size();
      build_.switches.push_back({node, std::move(pci), above});
      XYLEM_TRY(nics(node, nic, place));
      return functions_below(node, place, depth);
    }
    if (node.child("nic")) {
      XYLEM_TRY(nics(node, pci, above));
      // A NIC with a PCIe switch inside: devices below it become siblings of its network functions.
      return functions_below(node, above, depth);
    }
    // This is a root complex, which stands for the bridges that a virtual machine hides.
    if (pci.pci_class == kHostBridge) return below(node, above, depth + 1);
    if (node.child("pci") || is_bridge) {
      const std::size_t place = build_.switches.size();
      build_.switches.push_back({node, std::move(pci), above});
      return below(node, place, depth + 1);
    }
    return leaf(node, std::move(pci), above);
  }

  /// The functions below a node that also has a <nic>.
  Status functions_below(pugi::xml_node node, std::optional<std::size_t> above, std::size_t depth) {
    for (const pugi::xml_node inner : node.children("pci")) {
      if (depth >= kMaxBridgeDepth) {
        return build_.xml.error(inner,
                                fmt::format("more than {} bridges above it", kMaxBridgeDepth));
      }
      XYLEM_TRY(function(inner, above, depth + 1));
    }
    return Status::ok();
  }

  /// A leaf of a template: its class determines whether it is a GPU or a NIC. NCCL cannot use
  /// functions of other classes, so they are left out.
  Status leaf(pugi::xml_node node, PciDevice pci, std::optional<std::size_t> above) {
    const auto base = static_cast<std::uint8_t>(pci.pci_class >> 8);
    if (base == kClassDisplay || base == kClassAccelerator) {
      build_.gpus.push_back({node, std::move(pci), above});
    } else if (base == kClassNetwork) {
      Nic nic;
      nic.fabric = true;
      build_.nics.push_back({{node, std::move(pci), above}, std::move(nic)});
    } else if (!node.attribute("class")) {
      return build_.xml.error(
          node,
          fmt::format("{} has neither a class nor a <gpu> or <net>, so this template does not "
                      "say what it is; let NCCL complete it on the machine with "
                      "NCCL_TOPO_DUMP_FILE",
                      pci.address.to_string()));
    }
    return Status::ok();
  }

  Status nics(pugi::xml_node node, const PciDevice& pci, std::optional<std::size_t> above) {
    std::size_t count = 0;
    for (const pugi::xml_node nic : node.children("nic")) {
      for (const pugi::xml_node net : nic.children("net")) {
        if (pci.address.function + count >= kMostFunctions) {
          return build_.xml.error(
              net, fmt::format("more <net>s than the {} functions of a card", kMostFunctions));
        }
        Found function{node, pci, above};
        function.pci.address.function += static_cast<std::uint8_t>(count++);
        add(std::move(function), net);
      }
    }
    return Status::ok();
  }

  Status virtual_nics(pugi::xml_node nic) {
    for (const pugi::xml_node net : nic.children("net")) {
      if (clean_text(net.attribute("name").value()).empty()) {
        return build_.xml.error(net, "a <net> below no <pci> has neither an address nor a name");
      }
      Found nowhere{net, {}, {}};
      nowhere.pci.numa = {numa_};
      add(std::move(nowhere), net);
      build_.nics.back().nic.is_virtual = true;
    }
    return Status::ok();
  }

  void add(Found function, pugi::xml_node net) {
    Nic nic;
    nic.name = clean_text(net.attribute("name").value());
    nic.fabric = true;  // NCCL lists only NICs that it uses.
    if (const auto number = port_of(net)) {
      Port port;
      port.device = nic.name;
      port.number = *number;
      port.rate = rate_of(net);
      nic.ports.push_back(std::move(port));
    }
    function.node = net;
    build_.nics.push_back({std::move(function), std::move(nic)});
  }

  Result<PciDevice> read_function(pugi::xml_node node) const {
    PciDevice pci;
    const auto address = PciAddress::parse(node.attribute("busid").value());
    if (!address) {
      return build_.xml.error(node, fmt::format("busid {}", address.status().message()));
    }
    pci.address = *address;
    pci.numa = {numa_};
    XYLEM_TRY(const std::uint32_t pci_class, read_hex(node, "class"));
    pci.pci_class = static_cast<std::uint16_t>(pci_class >> 8);
    for (const auto& [name, value] :
         {std::pair("vendor", &PciId::vendor), std::pair("device", &PciId::device),
          std::pair("subsystem_vendor", &PciId::subsystem_vendor),
          std::pair("subsystem_device", &PciId::subsystem_device)}) {
      XYLEM_TRY(const std::uint32_t number, read_hex(node, name));
      pci.id.*value = static_cast<std::uint16_t>(number);
    }
    pci.uplink = read_uplink(node);
    return pci;
  }

  /// Reads a number such as "0x030200"; 0 if the attribute is absent.
  Result<std::uint32_t> read_hex(pugi::xml_node node, const char* name) const {
    std::string_view text = node.attribute(name).value();
    if (text.empty()) return 0U;
    std::string_view digits = text;
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    if (const auto number = parse_number<std::uint32_t>(digits, 16); number && *number < 1U << 24)
      return *number;
    return build_.xml.error(
        node,
        fmt::format("{} \"{}\" is no hexadecimal number of at most 24 bits", name, excerpt(text)));
  }

  /// Reads "16.0 GT/s PCIe" and "16". A template has neither attribute. If a machine hides speed
  /// and width, the attributes are "Unknown" or 0.
  static Rate read_uplink(pugi::xml_node node) {
    const std::string_view text = node.attribute("link_speed").value();
    const auto speed = parse_real(text.substr(0, text.find(' ')));
    const auto width = parse_number<std::uint32_t>(node.attribute("link_width").value());
    if (!speed || !width || *speed <= 0 || *width == 0) return {};
    return pcie_rate(*speed, *width);
  }

  Build& build_;
  std::uint32_t numa_;
};

/// Whether two devices at the same address may be the same function. False for NICs with different
/// names.
bool may_be_one(const Found& /*one*/, const Found& /*other*/) { return true; }
bool may_be_one(const FoundNic& one, const FoundNic& other) {
  return one.nic.name == other.nic.name;
}
/// The PCI function of an entry of either type. The result points into `*found`.
const Found* function_of(const Found* found) { return found; }
const Found* function_of(const FoundNic* found) { return &found->function; }

/// Sorts `found` by address, and merges entries with equal addresses, as they occur in handwritten
/// models: the first entry stays, and everything below the other entries moves below the first.
/// Returns the new position of each element.
template <typename Element>
Result<std::vector<std::uint32_t>> sort_and_merge(Build& build, std::vector<Element>& found) {
  std::vector<std::uint32_t> order(found.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto address_of = [&](std::uint32_t i) { return function_of(&found[i])->pci.address; };
  std::ranges::stable_sort(order, {}, address_of);
  std::vector<std::uint32_t> place(found.size());
  std::vector<Element> sorted;
  sorted.reserve(found.size());
  for (const std::uint32_t i : order) {
    const Found& function = *function_of(&found[i]);
    const bool is_first =
        sorted.empty() || function_of(&sorted.back())->pci.address != function.pci.address;
    if (!is_first) {
      const std::string twice =
          fmt::format("PCI function {} is here twice", function.pci.address.to_string());
      if (!may_be_one(sorted.back(), found[i])) return build.xml.error(function.node, twice);
      build.remarks.push_back(build.xml.remark(function.node, twice + "; its first place counts"));
    } else {
      sorted.push_back(std::move(found[i]));
    }
    place[i] = static_cast<std::uint32_t>(sorted.size() - 1);
  }
  found = std::move(sorted);
  return place;
}

/// Drops switches that lead to no GPU and no NIC. This happens after merging, since merging can
/// empty a switch or fill an empty one. `places` holds the new position of each switch of the file.
void drop_empty_switches(Build& build, std::vector<std::uint32_t>& places) {
  std::vector<Found>& switches = build.switches;
  std::vector<bool> leads_somewhere(switches.size());
  const auto mark_above = [&](const Found& device) {
    for (auto above = device.parent; above; above = switches[places[*above]].parent) {
      leads_somewhere[places[*above]] = true;
    }
  };
  for (const Found& gpu : build.gpus) mark_above(gpu);
  for (const FoundNic& nic : build.nics) mark_above(nic.function);

  std::vector<std::uint32_t> index(switches.size());
  std::vector<Found> kept;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    index[i] = static_cast<std::uint32_t>(kept.size());
    if (leads_somewhere[i]) kept.push_back(std::move(switches[i]));
  }
  switches = std::move(kept);
  for (std::uint32_t& place : places) place = index[place];
}

/// Sets the NUMA node of each device to that of the outermost switch above it, since merging may
/// have moved the device to a switch of another node.
void follow_switches(Build& build, const std::vector<std::uint32_t>& places) {
  const auto follow = [&](Found& device) {
    const Found* outermost = &device;
    while (outermost->parent) outermost = &build.switches[places[*outermost->parent]];
    device.pci.numa = outermost->pci.numa;
  };
  for (Found& found : build.switches) follow(found);
  for (Found& gpu : build.gpus) follow(gpu);
  for (FoundNic& nic : build.nics) follow(nic.function);
}

/// One host bridge for each NUMA node. It stands for all host bridges of the node, since the file
/// does not distinguish them, and covers the buses of the lowest domain below the node.
class HostBridges {
 public:
  explicit HostBridges(Build& build) {
    for (const Found& found : build.switches) add(found.pci);
    for (const Found& found : build.gpus) add(found.pci);
    for (const FoundNic& found : build.nics) {
      if (!found.nic.is_virtual) add(found.function.pci);
    }
    for (const auto& [numa, bridge] : bridges_) {
      places_[numa] = static_cast<std::uint32_t>(build.machine.host_bridges.size());
      build.machine.host_bridges.push_back(bridge);
    }
  }

  std::optional<NodeRef> of(const Locality& numa) const {
    const auto place = numa.size() == 1 ? places_.find(numa.front()) : places_.end();
    if (place == places_.end()) return std::nullopt;
    return NodeRef{NodeKind::host_bridge, place->second};
  }

 private:
  void add(const PciDevice& pci) {
    const PciAddress& at = pci.address;
    const HostBridge fresh{at.domain, at.bus, at.bus, pci.numa, /*implied=*/true};
    const auto [entry, is_new] = bridges_.try_emplace(pci.numa.front(), fresh);
    HostBridge& bridge = entry->second;
    if (is_new || at.domain > bridge.domain) return;
    if (at.domain < bridge.domain) {
      bridge = fresh;
      return;
    }
    bridge.first_bus = std::min(bridge.first_bus, at.bus);
    bridge.last_bus = std::max(bridge.last_bus, at.bus);
  }

  std::map<std::uint32_t, HostBridge> bridges_;  ///< The key is the NUMA node.
  std::map<std::uint32_t, std::uint32_t> places_;
};

/// Merges the entries of each virtual interface. NCCL lists an interface of unknown place below
/// every <cpu>.
void merge_virtual_nics(Build& build) {
  std::map<std::string, std::size_t> first;
  std::vector<FoundNic> merged;
  for (FoundNic& found : build.nics) {
    const auto [entry, is_new] = found.nic.is_virtual
                                     ? first.try_emplace(found.nic.name, merged.size())
                                     : std::pair(first.end(), true);
    if (is_new) {
      merged.push_back(std::move(found));
      continue;
    }
    Locality& numa = merged[entry->second].function.pci.numa;
    if (numa.back() != found.function.pci.numa.front())
      numa.push_back(found.function.pci.numa.front());
  }
  build.nics = std::move(merged);
}

/// Adds an interface for each NIC that has a name but no port. Call after all NICs are listed.
void add_interfaces(Build& build) {
  Machine& machine = build.machine;
  std::map<std::string, NetInterface> by_name;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    if (!nic.ports.empty() || nic.name.empty()) continue;
    NetInterface interface;
    interface.name = nic.name;
    interface.kind = nic.is_virtual ? InterfaceKind::other_virtual : InterfaceKind::physical;
    interface.rate = rate_of(build.nics[i].function.node);
    interface.nic = i;
    by_name.try_emplace(nic.name, std::move(interface));
  }
  for (auto& [name, interface] : by_name) machine.interfaces.push_back(std::move(interface));
}

}  // namespace

Status find_devices(Build& build, pugi::xml_node cpu, std::uint32_t numa) {
  return Reader(build, numa).below(cpu, std::nullopt, 0);
}

Status list_devices(Build& build) {
  Machine& machine = build.machine;
  merge_virtual_nics(build);
  const auto first_virtual = std::ranges::stable_partition(
      build.nics, [](const FoundNic& found) { return !found.nic.is_virtual; });
  std::vector<FoundNic> virtual_nics(std::make_move_iterator(first_virtual.begin()),
                                     std::make_move_iterator(first_virtual.end()));
  build.nics.erase(first_virtual.begin(), first_virtual.end());
  std::ranges::sort(virtual_nics, {}, [](const FoundNic& found) { return found.nic.name; });

  XYLEM_TRY(auto places, sort_and_merge(build, build.switches));
  XYLEM_TRY(sort_and_merge(build, build.gpus).status());
  XYLEM_TRY(sort_and_merge(build, build.nics).status());
  drop_empty_switches(build, places);
  follow_switches(build, places);
  std::ranges::move(virtual_nics, std::back_inserter(build.nics));
  const HostBridges host_bridges(build);
  const auto place = [&](Found& found) -> PciDevice {
    found.pci.parent = found.parent ? NodeRef{NodeKind::bridge, places[*found.parent]}
                                    : host_bridges.of(found.pci.numa);
    return found.pci;
  };
  for (Found& found : build.switches) {
    Bridge bridge;
    bridge.pci = place(found);
    bridge.is_switch = true;
    bridge.first_bus = bridge.last_bus = found.pci.address.bus;
    machine.bridges.push_back(std::move(bridge));
  }
  for (Found& found : build.gpus) {
    Gpu gpu;
    gpu.architecture = architecture_of(found.node.child("gpu"));
    gpu.pci = place(found);
    machine.gpus.push_back(std::move(gpu));
  }
  for (FoundNic& found : build.nics) {
    found.nic.pci = place(found.function);
    machine.nics.push_back(std::move(found.nic));
  }
  add_interfaces(build);
  return Status::ok();
}

}  // namespace xylem::topology::nccl_xml
