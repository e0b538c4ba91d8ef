// SPDX-License-Identifier: Apache-2.0
//
// Facts that sysfs reports in addition to hwloc: interfaces, RDMA ports, virtual functions, and the
// width and speed of PCIe links.
#include "nic_name.h"
#include "sysfs_files.h"
#include "text.h"
#include "xylem/topology/discover.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace xylem::topology {
namespace {

using sysfs::Directory;

constexpr double kMegabitsPerGigabyte = 8000;

/// The unsigned number in `file`.
std::optional<std::uint32_t> number_in(const std::filesystem::path& file) {
  const auto text = sysfs::value(file);
  return text ? parse_number<std::uint32_t>(*text) : std::nullopt;
}

std::optional<std::uint32_t> nic_at(const Machine& machine,
                                    const std::optional<PciAddress>& address) {
  if (!address) return std::nullopt;
  const auto at = std::ranges::lower_bound(machine.nics, *address, {},
                                           [](const Nic& nic) { return nic.pci.address; });
  if (at == machine.nics.end() || at->pci.address != *address) return std::nullopt;
  return static_cast<std::uint32_t>(at - machine.nics.begin());
}

// ---- interfaces ----

InterfaceKind interface_kind(const Directory& directory) {
  constexpr std::uint32_t kLoopbackType = 772;  // ARPHRD_LOOPBACK
  if (number_in(directory / "type") == kLoopbackType) return InterfaceKind::loopback;
  if (sysfs::has_directory(directory / "bonding")) return InterfaceKind::bond;
  if (sysfs::has_directory(directory / "bridge")) return InterfaceKind::bridge;
  if (sysfs::has_directory(directory / "device")) return InterfaceKind::physical;
  return InterfaceKind::other_virtual;
}

InterfaceState interface_state(const Directory& directory) {
  const auto state = sysfs::value(directory / "operstate");
  if (!state) return InterfaceState::unknown;
  if (*state == "up") return InterfaceState::up;
  // Drivers without link detection (loopback, tunnels) report "unknown", but have a carrier when
  // they work.
  if (*state != "unknown") return InterfaceState::down;
  return number_in(directory / "carrier") == 1U ? InterfaceState::up : InterfaceState::unknown;
}

/// `speed` is in megabits; drivers that do not know the speed report -1, 0 or the largest possible
/// number.
std::optional<GBps> interface_rate(const Directory& directory) {
  constexpr std::uint32_t kMostMegabits = 100'000'000;
  const auto megabits = number_in(directory / "speed");
  if (!megabits || *megabits == 0 || *megabits > kMostMegabits) return std::nullopt;
  return GBps{*megabits / kMegabitsPerGigabyte};
}

void add_interfaces(Machine& machine, const Directory& net) {
  std::map<std::string, NetInterface> interfaces;
  for (NetInterface& interface : machine.interfaces)
    interfaces.emplace(interface.name, std::move(interface));
  for (const std::string& entry : sysfs::subdirectories(net)) {
    const Directory directory = net / entry;
    const std::string name = clean_text(entry);
    NetInterface& interface = interfaces[name];
    interface.name = name;
    interface.kind = interface_kind(directory);
    interface.state = interface_state(directory);
    interface.rate = interface_rate(directory);
    interface.mtu = number_in(directory / "mtu");
    interface.driver = clean_text(sysfs::link_target(directory / "device" / "driver").value_or(""));
    const Directory master = directory / "master";
    const bool in_bond = sysfs::has_directory(master / "bonding");
    interface.bond = in_bond ? clean_text(sysfs::link_target(master).value_or("")) : std::string();
    if (const auto nic = nic_at(machine, sysfs::pci_function(directory / "device")))
      interface.nic = nic;
  }
  machine.interfaces.clear();
  for (auto& [name, interface] : interfaces) machine.interfaces.push_back(std::move(interface));
}

// ---- RDMA ----

/// Parses text such as "4: ACTIVE".
PortState port_state(std::string_view text) {
  switch (parse_number<unsigned>(text.substr(0, text.find(':'))).value_or(0)) {
    case 1: return PortState::down;
    case 2: return PortState::initializing;
    case 3: return PortState::armed;
    case 4:
    case 5: return PortState::active;
    default: return PortState::unknown;
  }
}

LinkLayer link_layer(std::string_view text) {
  if (text == "InfiniBand") return LinkLayer::infiniband;
  if (text == "Ethernet") return LinkLayer::ethernet;
  return LinkLayer::unknown;  // EFA reports "Unknown".
}

/// Parses text such as "200 Gb/sec (4X HDR)".
std::optional<GBps> port_rate(std::string_view text) {
  const auto unit = text.find(" Gb/sec");
  if (unit == std::string_view::npos) return std::nullopt;
  const auto gigabits = parse_real(text.substr(0, unit));
  if (!gigabits || *gigabits == 0) return std::nullopt;
  return GBps{*gigabits / 8};
}

/// Parses "RoCE v2" or "IB/RoCE v1"; the latter is also the text for InfiniBand.
GidType gid_type(std::string_view text, LinkLayer layer) {
  if (text == "RoCE v2") return GidType::roce_v2;
  if (text != "IB/RoCE v1" || layer == LinkLayer::unknown) return GidType::unknown;
  return layer == LinkLayer::ethernet ? GidType::roce_v1 : GidType::infiniband;
}

/// The scope of an identifier as sysfs prints it, in eight full groups; nothing for an empty entry.
std::optional<GidScope> gid_scope(std::string_view gid) {
  if (gid.find_first_not_of("0:") == std::string_view::npos) return std::nullopt;
  if (gid.starts_with("0000:0000:0000:0000:0000:ffff:")) return GidScope::ipv4;
  if (gid.starts_with("fe80:")) return GidScope::link_local;
  return GidScope::global;
}

/// Adds the GIDs of a port, and the interface of the first GID that names one.
void add_gids(Port& port, const Directory& facts) {
  constexpr std::uint32_t kMostGids = 1024;
  const Directory attributes = facts / "gid_attrs";
  for (std::uint32_t i = 0; i < kMostGids; ++i) {
    const std::string index = std::to_string(i);
    const Directory entry = facts / "gids" / index;
    std::error_code error;
    if (!std::filesystem::exists(entry, error)) break;
    const auto scope = gid_scope(sysfs::value(entry).value_or(""));
    if (!scope) continue;
    const std::string type = sysfs::value(attributes / "types" / index).value_or("");
    port.gids.push_back({i, gid_type(type, port.link_layer), *scope});
    if (port.interface.empty())
      port.interface = sysfs::value(attributes / "ndevs" / index).value_or("");
  }
}

void add_ports(Nic& owner, const Directory& directory, const std::string& device) {
  // The GIDs of iWARP ports are not added, since iWARP packets do not contain GIDs.
  const bool is_iwarp = sysfs::value(directory / "node_type").value_or("").starts_with('4');
  std::erase_if(owner.ports, [&](const Port& port) { return port.device == device; });
  for (const std::string& port_entry : sysfs::subdirectories(directory / "ports")) {
    const auto number = parse_number<std::uint32_t>(port_entry);
    if (!number) continue;
    const Directory facts = directory / "ports" / port_entry;
    Port& port = owner.ports.emplace_back();
    port.device = device;
    port.number = *number;
    port.state = port_state(sysfs::value(facts / "state").value_or(""));
    port.link_layer = link_layer(sysfs::value(facts / "link_layer").value_or(""));
    port.rate = port_rate(sysfs::value(facts / "rate").value_or(""));
    if (!is_iwarp) add_gids(port, facts);
  }
}

void add_rdma_ports(Machine& machine, const Directory& infiniband) {
  for (const std::string& entry : sysfs::subdirectories(infiniband)) {
    const Directory directory = infiniband / entry;
    const auto nic = nic_at(machine, sysfs::pci_function(directory / "device"));
    if (!nic) continue;
    machine.nics[*nic].fabric = true;
    add_ports(machine.nics[*nic], directory, clean_text(entry));
  }
}

/// The place of the interface through which a software device sends; all nodes if it is unknown.
Locality place_of_parent(const Machine& machine, const Directory& device) {
  const std::string parent = clean_text(sysfs::value(device / "parent").value_or(""));
  const auto interface = std::ranges::find(machine.interfaces, parent, &NetInterface::name);
  const auto nic = interface == machine.interfaces.end() ? std::nullopt : interface->nic;
  if (nic) return machine.nics[*nic].pci.numa;
  Locality all;
  for (std::uint32_t i = 0; i < machine.numa_nodes.size(); ++i) all.push_back(i);
  return all;
}

/// Adds RDMA devices in software (soft-RoCE, soft-iWARP), which have no PCI function. They count as
/// fabric NICs only if the machine has no other fabric NIC. Call this last: these NICs have no
/// address, and nic_at() needs NICs that are sorted by address.
void add_virtual_rdma(Machine& machine, const Directory& infiniband) {
  const bool has_fabric = std::ranges::any_of(machine.nics, &Nic::fabric);
  const std::size_t first = machine.nics.size();
  for (const std::string& entry : sysfs::subdirectories(infiniband)) {
    const Directory directory = infiniband / entry;
    if (sysfs::has_directory(directory / "device")) continue;
    Nic nic;
    nic.name = clean_text(entry);
    nic.is_virtual = true;
    nic.fabric = !has_fabric;
    nic.pci.numa = place_of_parent(machine, directory);
    add_ports(nic, directory, nic.name);
    machine.nics.push_back(std::move(nic));
  }
  std::ranges::sort(machine.nics.begin() + static_cast<std::ptrdiff_t>(first), machine.nics.end(),
                    {}, &Nic::name);
}

// ---- PCIe ----

/// Parses "16.0 GT/s PCIe" or, before Linux 5.7, "16 GT/s". Virtual functions and bridges report
/// "Unknown".
std::optional<double> highest_speed(const Directory& function) {
  const auto text = sysfs::value(function / "max_link_speed");
  if (!text) return std::nullopt;
  const auto unit = text->find(" GT/s");
  if (unit == std::string::npos) return std::nullopt;
  const auto speed = parse_real(std::string_view(*text).substr(0, unit));
  return speed && pcie_generation(*speed) ? speed : std::nullopt;
}

/// Adds width and speed of the link of `pci`. `above` is the directory of the port at the other end
/// of the link.
void add_link_facts(PciDevice& pci,
                    const Directory& functions,
                    const std::optional<Directory>& above) {
  constexpr std::uint32_t kMostLanes = 32;
  const Directory function = functions / pci.address.to_string();
  const auto width = number_in(function / "current_link_width");
  auto speed = highest_speed(function);
  if (!width || *width == 0 || *width > kMostLanes || !speed) return;
  if (const auto other = above ? highest_speed(*above) : std::nullopt)
    speed = std::min(*speed, *other);
  pci.uplink = pcie_rate(*speed, *width);
}

/// Adds width and speed of the link between a device and the bridge above it. For the link of a
/// bridge, add_pci_facts() uses only the bridge's own values, since it is unknown whether a bridge
/// faces up or down. This is enough, since every path over the link also includes the bridge at its
/// other end.
void add_device_facts(const Machine& machine, PciDevice& pci, const Directory& functions) {
  std::optional<Directory> above;
  if (pci.parent && pci.parent->kind == NodeKind::bridge) {
    above = functions / machine.bridges[pci.parent->index].pci.address.to_string();
  }
  add_link_facts(pci, functions, above);
}

void add_pci_facts(Machine& machine, const Directory& functions) {
  for (Bridge& bridge : machine.bridges) add_link_facts(bridge.pci, functions, std::nullopt);
  for (Gpu& gpu : machine.gpus) add_device_facts(machine, gpu.pci, functions);
  for (NvSwitch& nvswitch : machine.nvswitches) add_device_facts(machine, nvswitch.pci, functions);
  for (Nic& nic : machine.nics) {
    add_device_facts(machine, nic.pci, functions);
    const auto physical = sysfs::link_target(functions / nic.pci.address.to_string() / "physfn");
    if (!physical) continue;
    if (const auto address = PciAddress::parse(*physical)) nic.physical_function = *address;
  }
}

}  // namespace

void add_sysfs_facts(Machine& machine, const std::string& root) {
  const Directory directory(root);
  add_rdma_ports(machine, directory / "class" / "infiniband");
  add_interfaces(machine, directory / "class" / "net");
  add_pci_facts(machine, directory / "bus" / "pci" / "devices");
  add_virtual_rdma(machine, directory / "class" / "infiniband");
  name_nics(machine);
}

}  // namespace xylem::topology
