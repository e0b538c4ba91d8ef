// SPDX-License-Identifier: Apache-2.0
//
// The PCIe tree: decides which functions are GPUs, NICs and NVSwitches, and keeps the bridges that
// lead to them.
#include "hwloc_xml/build.h"
#include "hwloc_xml/values.h"
#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace xylem::topology::hwloc_xml {
namespace {

/// A PCI function of the topology, before it is added to its list in Machine.
struct Found {
  std::uint32_t object;
  PciDevice pci;
};

bool is_host_bridge(const Object& object) {
  return std::string_view(object.node.attribute("bridge_type").value()) == "0-1";
}

bool is_pci_bridge(const Object& object) {
  return std::string_view(object.node.attribute("bridge_type").value()) == "1-1";
}

Result<BusRange> read_buses(const Build& build, std::uint32_t object) {
  const pugi::xml_node node = build.object(object).node;
  const char* text = node.attribute("bridge_pci").value();
  if (const auto range = parse_bus_range(text)) return *range;
  return build.document.error(
      node,
      fmt::format("bridge_pci \"{}\" is no range of buses (such as 0000:[50-54])", excerpt(text)));
}

/// Reads address, identity and link of a bridge or device. emit() sets its parent later.
Result<PciDevice> read_function(Build& build, std::uint32_t object) {
  const pugi::xml_node node = build.object(object).node;
  PciDevice pci;
  const auto address = PciAddress::parse(node.attribute("pci_busid").value());
  if (!address)
    return build.document.error(node, fmt::format("pci_busid {}", address.status().message()));
  pci.address = *address;

  const char* type_text = node.attribute("pci_type").value();
  const auto type = parse_pci_type(type_text);
  if (!type) {
    return build.document.error(node,
                                fmt::format("pci_type \"{}\" is no class and identifiers (such as "
                                            "0302 [10de:2335] [10de:18bf])",
                                            excerpt(type_text)));
  }
  pci.pci_class = type->pci_class;
  pci.id = type->id;
  pci.vendor = Document::info(node, "PCIVendor");
  pci.model = Document::info(node, "PCIDevice");

  if (const pugi::xml_attribute speed = node.attribute("pci_link_speed")) {
    const auto gigabytes = parse_real(speed.value());
    if (!gigabytes) {
      return build.document.error(node, fmt::format("pci_link_speed \"{}\" is no bandwidth in GB/s",
                                                    excerpt(speed.value())));
    }
    // hwloc writes zero for a value that it could not read.
    if (*gigabytes > 0) pci.uplink = Rate{GBps{*gigabytes}, Origin::read, {}, {}};
  }
  XYLEM_TRY(pci.numa, locality_of(build, object));
  return pci;
}

bool is_nvswitch(const Object& object, const PciDevice& pci) {
  constexpr std::uint16_t kOtherBridge = 0x0680;
  return std::string_view(object.node.attribute("subtype").value()) == "NVSwitch" ||
         (pci.id.vendor == kVendorNvidia && pci.pci_class == kOtherBridge);
}

/// Collects the PCI functions that become nodes of one kind. sort_and_check() sorts them by
/// address.
class Functions {
 public:
  explicit Functions(NodeKind kind) : kind_(kind) {}

  void add(std::uint32_t object, PciDevice pci) { found_.push_back({object, std::move(pci)}); }

  /// Sorts the functions by address, refuses duplicates, and records in `build` which object became
  /// which node.
  Status sort_and_check(Build& build) {
    std::ranges::sort(found_, [](const Found& left, const Found& right) {
      return std::tuple(left.pci.address, left.object) <
             std::tuple(right.pci.address, right.object);
    });
    for (std::uint32_t i = 0; i < found_.size(); ++i) {
      if (i > 0 && found_[i - 1].pci.address == found_[i].pci.address) {
        return build.document.error(
            build.object(found_[i].object).node,
            fmt::format("PCI function {} is here twice", found_[i].pci.address.to_string()));
      }
      build.nodes[found_[i].object] = NodeRef{kind_, i};
    }
    return Status::ok();
  }

  std::vector<Found>& found() { return found_; }

 private:
  NodeKind kind_;
  std::vector<Found> found_;
};

/// Finds the PCI functions of each kind, and the bridges above them.
class TreeBuilder {
 public:
  explicit TreeBuilder(Build& build) : build_(build), kept_(build.nodes.size(), false) {}

  Status run() {
    mark_rdma_functions();
    XYLEM_TRY(find_devices());
    XYLEM_TRY(find_bridges());
    XYLEM_TRY(add_host_bridges());
    for (Functions* functions : {&bridges_, &gpus_, &nics_, &nvswitches_}) {
      XYLEM_TRY(functions->sort_and_check(build_));
    }
    return emit();
  }

 private:
  void mark_rdma_functions() {
    for (std::uint32_t i = 0; i < build_.nodes.size(); ++i) {
      if (!is_openfabrics(build_.document, build_.object(i))) continue;
      if (const auto pci = pci_ancestor(build_, i)) rdma_.insert(*pci);
    }
  }

  Status find_devices() {
    for (std::uint32_t i = 0; i < build_.nodes.size(); ++i) {
      if (build_.object(i).type != ObjectType::pci_device) continue;
      XYLEM_TRY(PciDevice pci, read_function(build_, i));
      Functions* kind = nullptr;
      if (is_gpu(pci.id, pci.pci_class)) {
        kind = &gpus_;
      } else if (is_nvswitch(build_.object(i), pci)) {
        kind = &nvswitches_;
      } else if (pci.pci_class >> 8 == kClassNetwork || rdma_.contains(i)) {
        kind = &nics_;
      }
      if (kind == nullptr) continue;
      kind->add(i, std::move(pci));
      keep_ancestors(i);
    }
    return Status::ok();
  }

  void keep_ancestors(std::uint32_t object) {
    for (auto at = build_.object(object).parent; !kept_[at]; at = build_.object(at).parent) {
      kept_[at] = true;
    }
  }

  Status find_bridges() {
    for (std::uint32_t i = 0; i < build_.nodes.size(); ++i) {
      const Object& object = build_.object(i);
      if (object.type != ObjectType::bridge || !kept_[i]) continue;
      if (is_host_bridge(object)) {
        XYLEM_TRY(const BusRange buses, read_buses(build_, i));
        host_bridges_.emplace_back(buses, i);
      } else if (is_pci_bridge(object)) {
        XYLEM_TRY(PciDevice pci, read_function(build_, i));
        bridges_.add(i, std::move(pci));
      }
    }
    return Status::ok();
  }

  Status add_host_bridges() {
    std::ranges::sort(host_bridges_, [](const auto& left, const auto& right) {
      const auto key = [](const auto& found) {
        const BusRange& buses = found.first;
        return std::tuple(buses.domain, buses.first, buses.last, found.second);
      };
      return key(left) < key(right);
    });
    for (const auto& [buses, object] : host_bridges_) {
      auto& list = build_.machine.host_bridges;
      build_.nodes[object] =
          NodeRef{NodeKind::host_bridge, static_cast<std::uint32_t>(list.size())};
      XYLEM_TRY(auto numa, locality_of(build_, object));
      list.push_back({buses.domain, buses.first, buses.last, std::move(numa)});
    }
    return Status::ok();
  }

  /// The nearest bridge above `object`; nothing if the file lists the device outside of the PCIe
  /// tree.
  std::optional<NodeRef> parent_of(std::uint32_t object) const {
    for (auto at = build_.object(object).parent; at != 0; at = build_.object(at).parent) {
      if (build_.object(at).type == ObjectType::bridge && build_.nodes[at]) return build_.nodes[at];
    }
    return std::nullopt;
  }

  Status emit() {
    Machine& machine = build_.machine;
    for (auto& [object, pci] : bridges_.found()) {
      XYLEM_TRY(const BusRange buses, read_buses(build_, object));
      pci.parent = parent_of(object);
      machine.bridges.push_back({std::move(pci), buses.first, buses.last});
    }
    for (auto& [object, pci] : gpus_.found()) {
      pci.parent = parent_of(object);
      Gpu gpu;
      gpu.model = pci.model;
      gpu.pci = std::move(pci);
      machine.gpus.push_back(std::move(gpu));
    }
    for (auto& [object, pci] : nics_.found()) {
      pci.parent = parent_of(object);
      Nic nic;
      nic.fabric = rdma_.contains(object) || pci.id.vendor == kVendorCray;
      nic.pci = std::move(pci);
      machine.nics.push_back(std::move(nic));
    }
    for (auto& [object, pci] : nvswitches_.found()) {
      pci.parent = parent_of(object);
      machine.nvswitches.push_back({std::move(pci)});
    }
    return Status::ok();
  }

  Build& build_;
  std::vector<bool> kept_;  ///< For each object, whether a GPU, NIC or NVSwitch is below it.
  std::set<std::uint32_t> rdma_;
  std::vector<std::pair<BusRange, std::uint32_t>> host_bridges_;
  Functions bridges_{NodeKind::bridge};
  Functions gpus_{NodeKind::gpu};
  Functions nics_{NodeKind::nic};
  Functions nvswitches_{NodeKind::nvswitch};
};

}  // namespace

std::optional<std::uint32_t> pci_ancestor(const Build& build, std::uint32_t object) {
  for (auto at = object; at != 0; at = build.object(at).parent) {
    if (build.object(at).type == ObjectType::pci_device) return at;
  }
  return std::nullopt;
}

Status build_devices(Build& build) {
  XYLEM_TRY(TreeBuilder(build).run());
  return build_os_devices(build);
}

}  // namespace xylem::topology::hwloc_xml
