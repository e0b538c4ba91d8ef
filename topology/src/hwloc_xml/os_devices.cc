// SPDX-License-Identifier: Apache-2.0
//
// OS devices: the names that the operating system and drivers give to a PCI function. OS devices
// add facts to devices that were found by their PCI class. They never create a device, and are
// never used to match devices.
#include "hwloc_xml/build.h"
#include "nic_name.h"
#include "text.h"

#include <algorithm>
#include <map>
#include <set>

namespace xylem::topology::hwloc_xml {
namespace {

enum class OsDeviceKind : std::uint8_t { other, gpu, network, openfabrics };

OsDeviceKind kind_of(int schema, unsigned type) {
  if (schema < 3) {
    switch (type) {
      case 1:
      case 5: return OsDeviceKind::gpu;  // GPU or coprocessor.
      case 2: return OsDeviceKind::network;
      case 3: return OsDeviceKind::openfabrics;
      default: return OsDeviceKind::other;
    }
  }
  // Since schema 3 the type is a set of bits.
  constexpr unsigned kGpu = 1U << 2;
  constexpr unsigned kCoprocessor = 1U << 3;
  constexpr unsigned kNetwork = 1U << 4;
  constexpr unsigned kOpenFabrics = 1U << 5;
  if ((type & kOpenFabrics) != 0) return OsDeviceKind::openfabrics;
  if ((type & kNetwork) != 0) return OsDeviceKind::network;
  if ((type & (kGpu | kCoprocessor)) != 0) return OsDeviceKind::gpu;
  return OsDeviceKind::other;
}

OsDeviceKind kind_of(const Document& document, const Object& object) {
  if (object.type != ObjectType::os_device) return OsDeviceKind::other;
  const auto type = parse_number<unsigned>(object.node.attribute("osdev_type").value());
  return type ? kind_of(document.schema(), *type) : OsDeviceKind::other;
}

/// The numbers are values of ibv_port_state.
PortState port_state(std::string_view text) {
  switch (parse_number<unsigned>(text).value_or(0)) {
    case 1: return PortState::down;
    case 2: return PortState::initializing;
    case 3: return PortState::armed;
    case 4:
    case 5: return PortState::active;  // 5 is "active, deferring an error".
    default: return PortState::unknown;
  }
}

/// Adds ports from elements such as `<info name="Port1State" value="4"/>`; if there are none, adds
/// one port of unknown state.
void add_ports(Nic& nic, const std::string& device, pugi::xml_node node) {
  const auto first = nic.ports.size();
  for (const pugi::xml_node info : node.children("info")) {
    std::string_view name = info.attribute("name").value();
    if (!name.starts_with("Port") || !name.ends_with("State")) continue;
    name.remove_prefix(4);
    name.remove_suffix(5);
    const auto number = parse_number<std::uint8_t>(name);
    if (!number) continue;
    Port port;
    port.device = device;
    port.number = *number;
    port.state = port_state(info.attribute("value").value());
    nic.ports.push_back(port);
  }
  if (nic.ports.size() == first) nic.ports.push_back(Port{device, 1, {}, {}, {}});
}

bool all_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

/// Names that drivers give to one GPU, collected until all of its OS devices have been seen.
struct GpuNames {
  std::map<std::string, std::vector<Partition>> by_backend;
};

void add_gpu_facts(Gpu& gpu, GpuNames& names, const std::string& name, pugi::xml_node node) {
  gpu.os_names.push_back(name);
  const std::string backend = Document::info(node, "Backend");
  if (const auto model = Document::info(node, "GPUModel"); !model.empty()) gpu.model = model;
  std::string uuid = Document::info(node, "NVIDIAUUID");
  if (uuid.empty()) uuid = Document::info(node, "AMDUUID");
  if (all_zero(uuid)) uuid.clear();  // Firmware without a UUID reports zeros.
  if (!uuid.empty() && gpu.uuid.empty()) gpu.uuid = uuid;
  if (!backend.empty()) names.by_backend[backend].push_back({name, uuid});
}

/// A driver that lists a function more than once has partitioned the GPU.
void add_partitions(Gpu& gpu, const GpuNames& names) {
  for (const auto& [backend, partitions] : names.by_backend) {
    if (partitions.size() > std::max<std::size_t>(1, gpu.partitions.size()))
      gpu.partitions = partitions;
  }
}

}  // namespace

bool is_openfabrics(const Document& document, const Object& object) {
  return kind_of(document, object) == OsDeviceKind::openfabrics;
}

Status build_os_devices(Build& build) {
  Machine& machine = build.machine;
  std::vector<GpuNames> gpu_names(machine.gpus.size());
  std::map<std::string, NetInterface> interfaces;

  for (std::uint32_t i = 0; i < build.nodes.size(); ++i) {
    const Object& object = build.object(i);
    const OsDeviceKind kind = kind_of(build.document, object);
    if (kind == OsDeviceKind::other) continue;
    const std::string name = clean_text(object.node.attribute("name").value());
    if (name.empty()) return build.document.error(object.node, "an OS device has no name");
    const auto pci = pci_ancestor(build, i);
    const auto owner = pci ? build.nodes[*pci] : std::nullopt;
    const bool of_nic = owner && owner->kind == NodeKind::nic;
    if (kind == OsDeviceKind::network) {
      NetInterface interface;
      interface.name = name;
      if (of_nic) interface.nic = owner->index;
      interfaces.emplace(name, std::move(interface));
    } else if (kind == OsDeviceKind::openfabrics && of_nic) {
      add_ports(machine.nics[owner->index], name, object.node);
    } else if (kind == OsDeviceKind::gpu && owner && owner->kind == NodeKind::gpu) {
      add_gpu_facts(machine.gpus[owner->index], gpu_names[owner->index], name, object.node);
    }
  }
  for (auto& [name, interface] : interfaces) machine.interfaces.push_back(std::move(interface));
  for (std::size_t i = 0; i < machine.gpus.size(); ++i)
    add_partitions(machine.gpus[i], gpu_names[i]);
  name_nics(machine);
  return Status::ok();
}

}  // namespace xylem::topology::hwloc_xml
