// SPDX-License-Identifier: Apache-2.0
//
// Text that explains one device, or the path between two devices.
#include "text.h"
#include "words.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/path.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace xylem::topology {
namespace {

std::string name_of_device(const Topology& topology, NodeRef node) {
  switch (node.kind) {
    case NodeKind::gpu: return fmt::format("GPU{}", node.index);
    case NodeKind::nic: return topology.nics()[node.index].name;
    default: return fmt::format("NVSwitch{}", node.index);
  }
}

std::string place_of(const Topology& topology, NodeRef node) {
  const PciDevice& pci = topology.pci(node);
  std::string text = name_of_device(topology, node);
  const bool is_virtual = node.kind == NodeKind::nic && topology.nics()[node.index].is_virtual;
  text += is_virtual ? ", not on PCI" : fmt::format(", {}", pci.address.to_string());
  if (const std::string link = pcie_text(pci.uplink); !link.empty())
    text += fmt::format(", {}", link);
  if (pci.numa.size() == 1) {
    const NumaNode& node_near = topology.numa_nodes()[pci.numa.front()];
    text += fmt::format(", near NUMA node {}", node_near.os_index);
    if (!node_near.cpus.empty()) text += fmt::format(" (CPUs {})", node_near.cpus.to_string());
  } else {
    text += ", place unknown";
  }
  return text + "\n";
}

std::string_view word_of(NicUse use) {
  switch (use) {
    case NicUse::usable: break;
    case NicUse::no_fabric: return "has no verbs, unlike others of this host";
    case NicUse::down: return "is down";
    case NicUse::slow:
      return "is below a quarter of the fastest NIC's rate: for management or storage";
  }
  return "is usable";
}

std::string explain_gpu(const Topology& topology,
                        const NicAssignment& assignment,
                        std::uint32_t gpu) {
  const GpuNics& own = assignment.gpus[gpu];
  std::string text =
      fmt::format("  {}{}\n", own.nics.empty() ? "uses no NIC: " : "uses ", own.reason);
  std::vector<std::string> nearest;
  const NearestNics near = nearest_nics(topology, gpu);
  nearest.reserve(near.nics.size());
  for (const std::uint32_t nic : near.nics) nearest.push_back(topology.nics()[nic].name);
  if (!nearest.empty()) text += fmt::format("  nearest by place: {}\n", fmt::join(nearest, ", "));
  for (const std::uint32_t nic : near.nics) {
    if (assignment.uses[nic] != NicUse::usable) {
      text += fmt::format("  {} {}\n", topology.nics()[nic].name, word_of(assignment.uses[nic]));
    }
  }
  return text;
}

/// The GPUs that a NIC serves.
std::string served_text(const NicAssignment& assignment, const std::vector<std::string>& served) {
  if (!served.empty()) return fmt::format("{}", fmt::join(served, ", "));
  return assignment.gpus.empty() ? "no GPU: this host has none" : "no GPU: others are nearer";
}

std::string explain_nic(const NicAssignment& assignment, std::uint32_t nic) {
  std::vector<std::string> served;
  for (std::uint32_t gpu = 0; gpu < assignment.gpus.size(); ++gpu) {
    const auto& nics = assignment.gpus[gpu].nics;
    if (std::ranges::find(nics, nic) != nics.end()) served.push_back(fmt::format("GPU{}", gpu));
  }
  const auto rail = std::ranges::find(assignment.rails, nic);
  std::string text;
  if (rail != assignment.rails.end()) {
    text += fmt::format("  rail {}, serves {}\n", std::distance(assignment.rails.begin(), rail),
                        served_text(assignment, served));
  } else {
    text += fmt::format("  serves no GPU: it {}\n", assignment.uses[nic] == NicUse::usable
                                                        ? "is nearest to none"
                                                        : word_of(assignment.uses[nic]));
  }
  return text;
}

}  // namespace

std::string explain(const Topology& topology, NodeRef device) {
  std::string text = place_of(topology, device);
  const NicAssignment assignment = assign_nics(topology);
  if (device.kind == NodeKind::gpu) text += explain_gpu(topology, assignment, device.index);
  if (device.kind == NodeKind::nic) text += explain_nic(assignment, device.index);
  return text;
}

std::string explain(const Topology& topology, NodeRef a, NodeRef b) {
  const Path way = path(topology, a, b);
  std::string text = place_of(topology, a) + place_of(topology, b);
  text += fmt::format("  path: {}", cell_of(way));
  if (way.path_class == PathClass::pix || way.path_class == PathClass::pxb) {
    text += fmt::format(", {} bridges below the nearest common one", way.bridges);
  }
  text += '\n';
  if (way.bandwidth) {
    text += fmt::format("  bandwidth: {}{} ({})\n", way.bandwidth_is_bound ? "at most " : "",
                        format_bandwidth(*way.bandwidth), name(way.origin));
  } else {
    text += "  bandwidth: unknown, because no link on the path has a known rate\n";
  }
  if (way.locality_assumed) {
    text += way.path_class == PathClass::nvl
                ? "  assumed: the host's NVSwitches are one fabric; the source does not say so\n"
                : "  assumed: the source does not distinguish these places\n";
  }
  if (way.path_class == PathClass::nvl) {
    text += fmt::format("  over PCIe alone: {}\n", cell_of(pci_path(topology, a, b)));
  }
  return text;
}

Result<NodeRef> find_device(const Topology& topology, std::string_view name) {
  const std::string shown_name = excerpt(name);
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  const auto numbers = nic_numbers(topology);
  std::vector<std::string> known;
  for (std::uint32_t i = 0; i < topology.gpus().size(); ++i) {
    const PciAddress address = topology.gpus()[i].pci.address;
    if (lower == fmt::format("gpu{}", i) || lower == address.to_string())
      return NodeRef{NodeKind::gpu, i};
    known.push_back(fmt::format("gpu{}", i));
  }
  for (std::uint32_t i = 0; i < topology.nics().size(); ++i) {
    const Nic& nic = topology.nics()[i];
    const auto& number = numbers[i];
    const bool is_numbered = number && lower == fmt::format("nic{}", *number);
    const bool has_port =
        std::ranges::any_of(nic.ports, [&](const Port& port) { return port.device == name; });
    if (is_numbered || has_port || name == nic.name ||
        (!nic.is_virtual && lower == nic.pci.address.to_string())) {
      return NodeRef{NodeKind::nic, i};
    }
    known.push_back(nic.name);
  }
  constexpr std::size_t kShown = 16;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(known.size(), kShown));
  return failure(
      Code::invalid_argument,
      known.empty() ? fmt::format("no device \"{}\": this host has neither GPU nor NIC", shown_name)
                    : fmt::format("no device \"{}\"; there are {}{}", shown_name,
                                  fmt::join(known.begin(), known.begin() + shown, ", "),
                                  known.size() > kShown ? ", …" : ""));
}

}  // namespace xylem::topology
