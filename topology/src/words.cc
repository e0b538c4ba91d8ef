// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace xylem::topology {

std::vector<std::optional<std::uint32_t>> nic_numbers(const Topology& topology) {
  std::vector<std::optional<std::uint32_t>> numbers(topology.nics().size());
  const auto fabric = topology.fabric_nics();
  for (std::uint32_t i = 0; i < fabric.size(); ++i) numbers[fabric[i]] = i;
  return numbers;
}

std::string cell_of(const Path& path) {
  if (path.path_class == PathClass::unknown) return "?";
  if (path.path_class == PathClass::nvl) {
    if (path.kind == LinkKind::xgmi) return "XGMI";
    return path.nvlinks ? fmt::format("NV{}", *path.nvlinks) : "NV";
  }
  std::string cell(name(path.path_class));
  std::ranges::transform(cell, cell.begin(),
                         [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  return cell;
}

std::string in_gigabits(GBps rate) { return fmt::format("{:.4g} Gb/s", rate.value * 8); }

std::string gid_text(const Port& port) {
  const Gid* gid = preferred_gid(port);
  if (gid == nullptr || gid->type == GidType::infiniband) return {};
  if (gid->type == GidType::roce_v1) {
    const bool is_all_known =
        std::ranges::find(port.gids, GidType::unknown, &Gid::type) == port.gids.end();
    return fmt::format("RoCE v1 GID {}{}", gid->index, is_all_known ? ", none of v2" : "");
  }
  constexpr auto kScopes = std::to_array<std::string_view>({"IPv4", "link-local", "IPv6"});
  return fmt::format("RoCE v2 GID {} ({})", gid->index,
                     kScopes[static_cast<std::size_t>(gid->scope)]);
}

std::string pcie_text(const Rate& rate) {
  if (!rate.bandwidth) return {};
  const auto generation = rate.speed ? pcie_generation(*rate.speed) : std::nullopt;
  if (generation && rate.width) {
    return fmt::format("PCIe gen {} x{}, {}", *generation, *rate.width,
                       format_bandwidth(*rate.bandwidth));
  }
  return fmt::format("PCIe {}", format_bandwidth(*rate.bandwidth));
}

std::string memory_text(const NumaNode& node) {
  if (node.memory.value == 0) return {};
  constexpr double kGibibyte = 1 << 30;
  return fmt::format("{:.1f} GiB", static_cast<double>(node.memory.value) / kGibibyte);
}

std::string memory_text(const Gpu& gpu) {
  if (gpu.memory.value == 0 && !gpu.memory_rate.bandwidth) return {};
  std::string text = "memory";
  if (gpu.memory.value > 0) text += ' ' + format_bytes(gpu.memory);
  if (gpu.memory_rate.bandwidth) text += " at " + format_bandwidth(*gpu.memory_rate.bandwidth);
  return text;
}

std::string_view peer_access_text(PeerAccess access) {
  switch (access) {
    case PeerAccess::yes: return "possible";
    case PeerAccess::no: return "not possible";
    case PeerAccess::no_by_chipset: return "not possible (the chipset does not support it)";
    case PeerAccess::no_by_gpu: return "not possible (a GPU does not support it)";
    case PeerAccess::no_by_topology: return "not possible (the path does not support it)";
    case PeerAccess::disabled: return "disabled by a setting of the driver";
    case PeerAccess::unknown: break;
  }
  return "unknown";
}

std::string_view fabric_text(const Topology& topology, GpuFabric fabric) {
  const bool is_xgmi = std::ranges::any_of(
      topology.links(), [](const Link& link) { return link.kind == LinkKind::xgmi; });
  switch (fabric) {
    case GpuFabric::none:
    case GpuFabric::unknown: return "nothing";
    case GpuFabric::pcie:
      if (topology.links().empty()) return "PCIe";
      return is_xgmi ? "PCIe and XGMI" : "PCIe and NVLink";
    case GpuFabric::nvswitch: return "NVSwitches";
    case GpuFabric::partial:
    case GpuFabric::mesh: break;
  }
  return is_xgmi ? "XGMI" : "NVLink";
}

std::string ring_text(const Topology& topology,
                      const RingPlan& plan,
                      const BandwidthBounds& bounds) {
  if (plan.fabric == GpuFabric::unknown) {
    return fmt::format("no ring is sought over more than {} GPUs; in order", kMostSearchedGpus);
  }
  const std::size_t count = plan.channels.size();
  std::string text = fmt::format("{} GPU ring{} over {}", count, count == 1 ? "" : "s",
                                 fabric_text(topology, plan.fabric));
  if (!plan.bandwidth) return text + ", of unknown bandwidth";
  text += fmt::format(", {}{}{}", plan.bandwidth_is_bound ? "at most " : "",
                      format_bandwidth(*plan.bandwidth), count == 1 ? "" : " together");
  if (!plan.best_is_exact) text += ", the best found";
  if (!bounds.all_gather || !bounds.all_reduce) return text;
  const std::string gather = format_bandwidth(*bounds.all_gather);
  const std::string reduce = format_bandwidth(*bounds.all_reduce);
  const std::string_view over = plan.fabric == GpuFabric::pcie ? "" : " over them";
  if (gather == reduce) return text + fmt::format("; no schedule{} exceeds {}", over, gather);
  return text + fmt::format("; no all_gather{} exceeds {}, no all_reduce {}", over, gather, reduce);
}

}  // namespace xylem::topology
