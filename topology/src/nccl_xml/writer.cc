// SPDX-License-Identifier: Apache-2.0
//
// Writes a topology in the form that NCCL reads, as far as that form can express it.
#include "nccl_xml/build.h"
#include "places.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>

namespace xylem::topology {
namespace nccl_xml {
namespace {

/// Lanes and speed of a link of which only the bandwidth is known. If several combinations fit, the
/// widest link is chosen.
std::optional<Rate> as_lanes(GBps bandwidth) {
  constexpr double kNear = 0.01;
  for (const std::uint32_t width : {16U, 8U, 4U, 2U, 1U}) {
    for (const double speed : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
      const Rate rate = pcie_rate(speed, width);
      const double value = rate.bandwidth.value_or(GBps{}).value;
      if (std::abs(value - bandwidth.value) < kNear * bandwidth.value) return rate;
    }
  }
  return std::nullopt;
}

/// "16.0 GT/s PCIe", as Linux writes it.
std::string speed_text(double speed) {
  const bool is_whole = speed == std::floor(speed);
  return is_whole ? fmt::format("{:.1f} GT/s PCIe", speed) : fmt::format("{} GT/s PCIe", speed);
}

class Writer {
 public:
  explicit Writer(const Topology& topology) : topology_(topology) {
    for (const std::uint32_t nic : topology.fabric_nics()) used_.insert(nic);
  }

  std::string write() {
    pugi::xml_node system = document_.append_child("system");
    system.append_attribute("version") = 1;
    for (std::uint32_t i = 0; i < topology_.numa_nodes().size(); ++i) add_cpu(system, i);
    for (const Place& place : places_of(topology_, Folding::nothing).children) below(place, {});
    add_virtual_nics();
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_indent | pugi::format_no_declaration);
    return text.str();
  }

 private:
  void add_cpu(pugi::xml_node system, std::uint32_t index) {
    const NumaNode& node = topology_.numa_nodes()[index];
    pugi::xml_node cpu = system.append_child("cpu");
    const std::string number = node.implied ? "-1" : std::to_string(node.os_index);
    cpu.append_attribute("numaid") = number.c_str();
    if (!node.cpus.empty()) cpu.append_attribute("affinity") = node.cpus.to_bitmap().c_str();
    if (!topology_.machine().architecture.empty()) {
      cpu.append_attribute("arch") = topology_.machine().architecture.c_str();
    }
    cpus_.push_back(cpu);
  }

  /// The narrower of two consecutive links.
  static Rate narrower(const Rate& a, const Rate& b) {
    if (!a.bandwidth) return b;
    return b.bandwidth && *b.bandwidth < *a.bandwidth ? b : a;
  }

  /// The bridges that are left out above a device: their number, and the narrowest of their links.
  struct Way {
    std::uint32_t bridges = 0;
    Rate rate;
  };

  /// Writes everything attached to `place`, below the element `parent` or, if that is empty, below
  /// a <cpu>.
  void below(const Place& place, const Way& way, pugi::xml_node parent = {}) {
    if (!place.node) return each_below(place, way, parent);
    switch (place.node->kind) {
      case NodeKind::bridge: return bridge(place, place.node->index, way, parent);
      case NodeKind::gpu: return gpu(place.node->index, way.rate, parent);
      case NodeKind::nic: return nic(place.node->index, way.rate, parent);
      default: return each_below(place, way, parent);
    }
  }

  void each_below(const Place& place, const Way& way, pugi::xml_node parent) {
    for (const Place& child : place.children) below(child, way, parent);
  }

  /// The number of children that are, or lead to, a GPU or a used NIC.
  std::size_t ways_below(const Place& place) const {
    std::size_t ways = 0;
    for (const Place& child : place.children) {
      if (child.node && child.node->kind == NodeKind::bridge) {
        ways += ways_below(child) > 0 ? 1 : 0;
      } else if (child.node && child.node->kind == NodeKind::gpu) {
        ++ways;
      } else if (child.node && child.node->kind == NodeKind::nic) {
        ways += used_.contains(child.node->index) ? 1 : 0;
      }
    }
    return ways;
  }

  /// A switch is written where the tree branches, and where Bridge::is_switch is set. If several
  /// bridges follow each other below a switch, the second is written as another switch.
  void bridge(const Place& place, std::uint32_t index, const Way& way, pugi::xml_node parent) {
    const Bridge& bridge = topology_.bridges()[index];
    const Rate uplink = narrower(bridge.pci.uplink, way.rate);
    const std::size_t ways = ways_below(place);
    const bool is_far = parent && way.bridges > 0;
    if (ways == 0) return;
    if (ways == 1 && !bridge.is_switch && !is_far) {
      return each_below(place, {way.bridges + 1, uplink}, parent);
    }
    const std::uint16_t pci_class = bridge.is_switch ? bridge.pci.pci_class : kPciBridge;
    each_below(place, {}, function(parent, bridge.pci, uplink, pci_class));
  }

  pugi::xml_node cpu_of(const PciDevice& pci) const { return cpus_[pci.numa.front()]; }

  pugi::xml_node function(pugi::xml_node parent,
                          const PciDevice& pci,
                          const Rate& uplink,
                          std::uint16_t pci_class) {
    pugi::xml_node node = (parent ? parent : cpu_of(pci)).append_child("pci");
    node.append_attribute("busid") = pci.address.to_string().c_str();
    const auto hex = [&](const char* name, std::uint16_t value) {
      if (value != 0) node.append_attribute(name) = fmt::format("0x{:04x}", value).c_str();
    };
    if (pci_class != 0) {
      node.append_attribute("class") = fmt::format("0x{:04x}00", pci_class).c_str();
    }
    hex("vendor", pci.id.vendor);
    hex("device", pci.id.device);
    hex("subsystem_vendor", pci.id.subsystem_vendor);
    hex("subsystem_device", pci.id.subsystem_device);
    std::optional<Rate> lanes;
    if (uplink.speed && uplink.width) {
      lanes = uplink;
    } else if (uplink.bandwidth) {
      lanes = as_lanes(*uplink.bandwidth);
    }
    if (lanes && lanes->speed && lanes->width) {
      node.append_attribute("link_speed") = speed_text(*lanes->speed).c_str();
      node.append_attribute("link_width") = *lanes->width;
    }
    return node;
  }

  void gpu(std::uint32_t index, const Rate& way, pugi::xml_node parent) {
    const Gpu& gpu = topology_.gpus()[index];
    pugi::xml_node pci =
        function(parent, gpu.pci, narrower(gpu.pci.uplink, way), gpu.pci.pci_class);
    pugi::xml_node node = pci.append_child("gpu");
    node.append_attribute("dev") = index;
    if (std::string_view(gpu.architecture).starts_with(kCudaPrefix)) {
      node.append_attribute("sm") = gpu.architecture.c_str() + kCudaPrefix.size();
    } else if (!gpu.architecture.empty()) {
      node.append_attribute("gcn") = gpu.architecture.c_str();
    }
    for (const Link& link : topology_.links()) {
      const NodeRef self{NodeKind::gpu, index};
      if (link.a == self) this->link(node, link, link.b);
      if (link.b == self) this->link(node, link, link.a);
    }
  }

  void link(pugi::xml_node gpu, const Link& link, NodeRef target) {
    const bool is_switch = target.kind == NodeKind::nvswitch;
    if (target.kind == NodeKind::package) return c2c(gpu, link.rate);
    if (target.kind != NodeKind::gpu && !is_switch) return;
    const PciDevice& pci = topology_.pci(target);
    pugi::xml_node node = gpu.append_child(link.kind == LinkKind::xgmi ? "xgmi" : "nvlink");
    node.append_attribute("target") = is_switch && pci.address == kHiddenSwitch
                                          ? "fffffff:ff:ff.0"
                                          : pci.address.to_string().c_str();
    node.append_attribute("count") = link.rate.width.value_or(1);
    const std::uint32_t target_class =
        is_switch ? kNvSwitchClass : static_cast<std::uint32_t>(pci.pci_class) << 8;
    node.append_attribute("tclass") = fmt::format("0x{:06x}", target_class).c_str();
  }

  /// NCCL knows a link to a CPU of this kind only. (For POWER it writes an address, which is
  /// unknown.)
  void c2c(pugi::xml_node gpu, const Rate& rate) {
    if (topology_.machine().architecture.starts_with("ppc")) return;
    const std::uint32_t count = rate.width.value_or(1);
    pugi::xml_node node = gpu.append_child("c2c");
    const double megabytes = rate.bandwidth ? rate.bandwidth->value / kMegabyte / count : 0;
    node.append_attribute("bw") = static_cast<std::uint32_t>(std::lround(megabytes));
    node.append_attribute("count") = count;
  }

  void nic(std::uint32_t index, const Rate& way, pugi::xml_node parent) {
    const Nic& nic = topology_.nics()[index];
    if (nic.is_virtual || !used_.contains(index)) return;
    pugi::xml_node pci =
        function(parent, nic.pci, narrower(nic.pci.uplink, way), nic.pci.pci_class);
    // In a template, a NIC has neither ports nor an interface, and its class identifies it.
    const bool class_tells = nic.pci.pci_class >> 8 == kClassNetwork;
    if (!nic.ports.empty() || interface_of(index) != nullptr || !class_tells) add_net(pci, index);
  }

  const NetInterface* interface_of(std::uint32_t nic) const {
    const auto at = std::ranges::find(topology_.interfaces(), nic, &NetInterface::nic);
    return at == topology_.interfaces().end() ? nullptr : &*at;
  }

  void add_net(pugi::xml_node parent, std::uint32_t index) {
    const Nic& nic = topology_.nics()[index];
    pugi::xml_node net = parent.append_child("nic").append_child("net");
    net.append_attribute("name") =
        nic.ports.empty() ? nic.name.c_str() : nic.ports.front().device.c_str();
    net.append_attribute("dev") = nets_++;
    std::optional<GBps> rate;
    if (!nic.ports.empty()) {
      rate = nic.ports.front().rate;
    } else if (const NetInterface* interface = interface_of(index)) {
      rate = interface->rate;
    }
    if (rate) net.append_attribute("speed") = std::round(rate->value * kMegabitsPerGigabyte);
    net.append_attribute("port") = nic.ports.empty() ? 0 : nic.ports.front().number;
  }

  /// Writes virtual NICs below every <cpu> that they may be near.
  void add_virtual_nics() {
    for (const std::uint32_t nic : used_) {
      if (!topology_.nics()[nic].is_virtual) continue;
      for (const std::uint32_t numa : topology_.nics()[nic].pci.numa) add_net(cpus_[numa], nic);
    }
  }

  const Topology& topology_;
  std::set<std::uint32_t> used_;  ///< The NICs that NCCL would use.
  pugi::xml_document document_;
  std::vector<pugi::xml_node> cpus_;  ///< The <cpu> element of each NUMA node.
  std::uint32_t nets_ = 0;
};

}  // namespace
}  // namespace nccl_xml

std::string to_nccl_xml(const Topology& topology) { return nccl_xml::Writer(topology).write(); }

}  // namespace xylem::topology
