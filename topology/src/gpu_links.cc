// SPDX-License-Identifier: Apache-2.0
#include "gpu_links.h"

#include "text.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

namespace xylem::topology {
namespace {

/// The rate of one NVLink in one direction in GB/s, by compute capability times 10. From NVIDIA's
/// architecture whitepapers: P100 20, V100 to H100 25, A10x (GeForce, RTX) 14.0625, Blackwell 50.
std::optional<double> nvlink_rate(std::uint32_t sm) {
  if (sm == 60) return 20;
  if (sm == 86) return 14.0625;
  if (sm >= 70 && sm <= 90) return 25;
  if (sm >= 100) return 50;
  return std::nullopt;
}

/// The rate of one XGMI link, by GCN architecture. From AMD's CDNA whitepapers and data sheets:
/// MI50, MI60, MI100 46, MI250 50, MI300 64. RCCL writes "gfx942"; older versions write 942, and
/// 910 for gfx90a.
std::optional<double> xgmi_rate(std::string_view gcn) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kRates{{
      {"906", 46},
      {"908", 46},
      {"90a", 50},
      {"910", 50},
      {"940", 64},
      {"941", 64},
      {"942", 64},
  }};
  const auto known = std::ranges::find(kRates, gcn, &std::pair<std::string_view, double>::first);
  return known == kRates.end() ? std::nullopt : std::optional(known->second);
}

/// The rate of one link of a GPU with this Gpu::architecture.
std::optional<double> rate_of(LinkKind kind, std::string_view architecture) {
  const std::string_view prefix = kind == LinkKind::nvlink ? kCudaPrefix : kGcnPrefix;
  if (!architecture.starts_with(prefix)) return std::nullopt;
  architecture.remove_prefix(prefix.size());
  if (kind == LinkKind::xgmi) return xgmi_rate(architecture);
  return nvlink_rate(parse_number<std::uint32_t>(architecture).value_or(0));
}

/// The rate of `count` parallel links, from the architecture of the GPUs at their ends.
Rate rate_of(const Machine& machine, NodeRef a, NodeRef b, LinkKind kind, std::uint32_t count) {
  Rate rate;
  rate.width = count;
  for (const NodeRef end : {a, b}) {
    if (end.kind != NodeKind::gpu) continue;
    const auto one = rate_of(kind, machine.gpus[end.index].architecture);
    if (!one) continue;
    rate.bandwidth = std::max(rate.bandwidth.value_or(GBps{}), GBps{*one * count});
    rate.origin = Origin::derived;
  }
  return rate;
}

/// Adds NVSwitches that appear only as targets of links. Their place is unknown.
void add_nvswitches(Machine& machine, std::span<const LinkEnd> ends) {
  std::set<PciAddress> addresses;
  for (const LinkEnd& end : ends) {
    if (end.is_switch) addresses.insert(end.target);
  }
  for (const NvSwitch& known : machine.nvswitches) addresses.erase(known.pci.address);
  Locality anywhere;
  for (std::uint32_t i = 0; i < machine.numa_nodes.size(); ++i) anywhere.push_back(i);
  for (const PciAddress& address : addresses) {
    NvSwitch nvswitch;
    nvswitch.pci.address = address;
    nvswitch.pci.id.vendor = kVendorNvidia;
    nvswitch.pci.pci_class = static_cast<std::uint16_t>(kNvSwitchClass >> 8);
    if (address == kHiddenSwitch) nvswitch.pci.model = "hidden NVSwitch";
    nvswitch.pci.numa = anywhere;
    machine.nvswitches.push_back(std::move(nvswitch));
  }
  std::ranges::sort(machine.nvswitches, {}, [](const NvSwitch& one) { return one.pci.address; });
}

/// The node at the other end of the link; nothing if the machine does not have this GPU or
/// NVSwitch.
std::optional<NodeRef> target_of(const Machine& machine, const LinkEnd& end) {
  const auto find = [&](const auto& devices, NodeKind kind) -> std::optional<NodeRef> {
    const auto at = std::ranges::lower_bound(devices, end.target, {},
                                             [](const auto& device) { return device.pci.address; });
    if (at == devices.end() || at->pci.address != end.target) return std::nullopt;
    return NodeRef{kind, static_cast<std::uint32_t>(at - devices.begin())};
  };
  return end.is_switch ? find(machine.nvswitches, NodeKind::nvswitch)
                       : find(machine.gpus, NodeKind::gpu);
}

}  // namespace

void add_links(Machine& machine, std::span<const LinkEnd> ends) {
  add_nvswitches(machine, ends);
  // Both GPUs of a pair report the same links; if their counts differ, the larger one is used.
  std::map<std::tuple<NodeRef, NodeRef, LinkKind>, std::uint32_t> counts;
  for (const LinkEnd& end : ends) {
    const auto target = target_of(machine, end);
    NodeRef a{NodeKind::gpu, end.gpu};
    // Firmware reports unconnected links as links from a GPU to itself.
    if (!target || *target == a) continue;
    NodeRef b = *target;
    if (b < a) std::swap(a, b);
    std::uint32_t& count = counts[{a, b, end.kind}];
    count = std::max(count, end.count);
  }
  for (const auto& [key, count] : counts) {
    const auto& [a, b, kind] = key;
    machine.links.push_back({a, b, kind, rate_of(machine, a, b, kind, count)});
  }
}

}  // namespace xylem::topology
