// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string pcie_text(const Rate& rate) {
  if (!rate.bandwidth) return {};
  const auto generation = rate.speed ? pcie_generation(*rate.speed) : std::nullopt;
  if (generation && rate.width) {
    return fmt::format("PCIe gen {} x{}, {}", *generation, *rate.width,
                       format_bandwidth(*rate.bandwidth));
  }
  return fmt::format("PCIe {}", format_bandwidth(*rate.bandwidth));
}

}  // namespace xylem::topology
