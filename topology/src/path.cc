// SPDX-License-Identifier: Apache-2.0
//
// Finds paths over the PCIe tree and over NVLink.
#include "xylem/topology/path.h"

#include "xylem/base/check.h"

#include <algorithm>
#include <ranges>
#include <span>

namespace xylem::topology {
namespace {

/// Adds a link of this rate to the path.
void cross(Path& path, const Rate& rate) {
  if (!rate.bandwidth) {
    path.bandwidth_is_bound = true;
  } else if (!path.bandwidth || *rate.bandwidth < *path.bandwidth) {
    path.bandwidth = rate.bandwidth;
    path.origin = rate.origin;
  }
}

/// A device and the bridges above it, nearest first.
struct Ascent {
  std::vector<const PciDevice*> functions;  ///< The device itself, then the PCI-to-PCI bridges.
  std::vector<std::uint32_t> bridges;       ///< The indices of these bridges.
  std::optional<std::uint32_t> root;        ///< The host bridge.
};

Ascent ascend(const Topology& topology, NodeRef device) {
  Ascent ascent;
  ascent.functions.push_back(&topology.pci(device));
  auto parent = ascent.functions.front()->parent;
  while (parent && parent->kind == NodeKind::bridge) {
    ascent.bridges.push_back(parent->index);
    ascent.functions.push_back(&topology.bridges()[parent->index].pci);
    parent = ascent.functions.back()->parent;
  }
  if (parent) ascent.root = parent->index;
  return ascent;
}

/// The number of bridges on `ascent` below the nearest of the `shared` bridges. A switch whose
/// ports are not shown counts as two bridges; if it is the nearest shared bridge, its port on this
/// ascent counts as one.
std::size_t bridges_below(const Topology& topology, const Ascent& ascent, std::size_t shared) {
  const std::size_t below = ascent.bridges.size() - shared;
  std::size_t count = below;
  for (std::size_t i = 0; i < ascent.bridges.size() && i <= below; ++i) {
    count += topology.bridges()[ascent.bridges[i]].is_switch ? 1 : 0;
  }
  return count;
}

/// The number of bridges, counted from the top, that both ascents have in common.
std::size_t shared_bridges(const Ascent& a, const Ascent& b) {
  const auto from_top = std::views::reverse(a.bridges);
  const auto end = std::ranges::mismatch(from_top, std::views::reverse(b.bridges)).in1;
  return static_cast<std::size_t>(end - from_top.begin());
}

bool disjoint(const Locality& a, const Locality& b) {
  return std::ranges::none_of(
      a, [&](std::uint32_t node) { return std::ranges::binary_search(b, node); });
}

/// Sets the class of a path that leaves the PCIe tree, from the places of both ends.
void classify_by_place(Path& path, const PciDevice& a, const PciDevice& b, bool tree_is_known) {
  path.bandwidth_is_bound = true;  // The fabric between host bridges is unknown.
  if (disjoint(a.numa, b.numa)) {
    path.path_class = PathClass::sys;
  } else if (a.numa == b.numa && (a.numa.size() == 1 || tree_is_known)) {
    path.path_class = PathClass::node;
    path.locality_assumed = a.numa.size() > 1;
  }
}

bool is_device(NodeRef node) {
  return node.kind == NodeKind::gpu || node.kind == NodeKind::nic ||
         node.kind == NodeKind::nvswitch;
}

/// The links whose first end is `node`; links are sorted by their first end.
std::span<const Link> links_from(const Topology& topology, NodeRef node) {
  const auto links = std::ranges::equal_range(topology.links(), node, {}, &Link::a);
  return {links.begin(), links.end()};
}

/// The link from a GPU to the package of its CPU; null if there is none.
const Link* cpu_link(const Topology& topology, NodeRef device) {
  const auto links = links_from(topology, device);
  const auto found =
      std::ranges::find(links, NodeKind::package, [](const Link& link) { return link.b.kind; });
  return found == links.end() ? nullptr : &*found;
}

/// Adds `way`, which is parallel to the paths in `sum`. The number of NVLinks is the sum of their
/// numbers, and is known only if all numbers are known.
void add_parallel(Path& sum, const Path& way) {
  const bool first = sum.path_class != PathClass::nvl;
  sum.path_class = PathClass::nvl;
  sum.kind = way.kind;
  sum.bandwidth_is_bound = sum.bandwidth_is_bound || way.bandwidth_is_bound;
  if (way.bandwidth)
    sum.bandwidth = GBps{(sum.bandwidth ? sum.bandwidth->value : 0) + way.bandwidth->value};
  if (way.bandwidth) sum.origin = way.origin;
  if (first) {
    sum.nvlinks = way.nvlinks;
  } else if (sum.nvlinks && way.nvlinks) {
    *sum.nvlinks += *way.nvlinks;
  } else {
    sum.nvlinks.reset();
  }
}

Path over(const Link& link) {
  Path path;
  path.path_class = PathClass::nvl;
  path.kind = link.kind;
  path.nvlinks = link.rate.width;
  cross(path, link.rate);
  return path;
}

/// The NVSwitches that a GPU reaches, and all its links to them combined into one path.
struct Reach {
  std::vector<NodeRef> switches;
  Path way;
};

Reach reach_of(std::span<const Link> links) {
  Reach reach;
  for (const Link& link : links) {
    if (link.b.kind != NodeKind::nvswitch) continue;
    reach.switches.push_back(link.b);
    add_parallel(reach.way, over(link));
  }
  return reach;
}

/// The path through NVSwitches. The NVSwitches of a host form one fabric, so the path has the
/// bandwidth of the narrower end. If two GPUs reach different NVSwitches (as on the two boards of a
/// DGX-2), no source reports the links between these NVSwitches.
Path by_switches(const Reach& a, const Reach& b) {
  Path path = a.way;
  if (b.way.bandwidth && (!path.bandwidth || *b.way.bandwidth < *path.bandwidth)) {
    path.bandwidth = b.way.bandwidth;
    path.origin = b.way.origin;
  }
  path.nvlinks.reset();
  if (a.way.nvlinks && b.way.nvlinks) path.nvlinks = std::min(*a.way.nvlinks, *b.way.nvlinks);
  path.locality_assumed = a.switches != b.switches;
  path.bandwidth_is_bound =
      a.way.bandwidth_is_bound || b.way.bandwidth_is_bound || path.locality_assumed;
  return path;
}

/// The direct path from GPU to GPU combined with the path through NVSwitches; nothing if neither
/// path exists. Paths through a third GPU do not count, since GPUs do not forward data.
std::optional<Path> nvlink_path(const Topology& topology, NodeRef a, NodeRef b) {
  if (b < a) std::swap(a, b);
  Path sum;
  const auto of_a = links_from(topology, a);
  for (const Link& link : of_a) {
    if (link.b == b) add_parallel(sum, over(link));
  }
  const Reach from = reach_of(of_a), to = reach_of(links_from(topology, b));
  if (!from.switches.empty() && !to.switches.empty()) {
    const Path switched = by_switches(from, to);
    add_parallel(sum, switched);
    sum.locality_assumed = switched.locality_assumed;
  }
  if (sum.path_class != PathClass::nvl) return std::nullopt;
  return sum;
}

}  // namespace

Path pci_path(const Topology& topology, NodeRef a, NodeRef b) {
  XYLEM_CHECK(is_device(a) && is_device(b), a.to_string(), b.to_string());
  Path path;
  if (a == b) {
    path.path_class = PathClass::loc;
    return path;
  }
  const Ascent from = ascend(topology, a);
  const Ascent to = ascend(topology, b);
  const bool tree_is_known = from.root && to.root;
  const std::size_t shared = shared_bridges(from, to);
  const std::size_t below_from = from.bridges.size() - shared;
  const std::size_t below_to = to.bridges.size() - shared;
  const std::size_t ports_from = bridges_below(topology, from, shared);
  const std::size_t ports_to = bridges_below(topology, to, shared);
  path.bridges = static_cast<std::uint32_t>(ports_from + ports_to);

  // Crosses the uplinks of the devices and of the bridges below the nearest common bridge, but not
  // the uplink of the common bridge. A GPU with a link to its CPU (NVLink) uses that instead.
  const auto go_up = [&](NodeRef device, const Ascent& ascent, std::size_t below) {
    const Link* const link = shared == 0 ? cpu_link(topology, device) : nullptr;
    if (link != nullptr) return cross(path, link->rate);
    for (std::size_t i = 0; i <= below; ++i) cross(path, ascent.functions[i]->uplink);
  };
  go_up(a, from, below_from);
  go_up(b, to, below_to);

  if (shared > 0) {
    const bool within_one = ports_from <= 1 && ports_to <= 1;
    path.path_class = within_one ? PathClass::pix : PathClass::pxb;
  } else if (tree_is_known && from.root == to.root) {
    path.path_class = PathClass::phb;
    path.locality_assumed = topology.host_bridges()[*from.root].implied;
  } else {
    classify_by_place(path, *from.functions.front(), *to.functions.front(), tree_is_known);
  }
  return path;
}

Path path(const Topology& topology, NodeRef a, NodeRef b) {
  if (a != b && a.kind != NodeKind::nic && b.kind != NodeKind::nic) {
    if (const auto nvlink = nvlink_path(topology, a, b)) return *nvlink;
  }
  return pci_path(topology, a, b);
}

std::optional<std::string> gpus_without_their_links(const Topology& topology) {
  // "NVIDIA H100 80GB HBM3" is the module; the cards are called "H100 PCIe" and "H100 NVL".
  constexpr std::string_view kModules[] = {"SXM", "HBM3", "H200", "B200", "B300"};
  constexpr std::string_view kOthers[] = {"PCIe", "NVL", "GH200"};
  const bool has_links = std::ranges::any_of(
      topology.links(), [](const Link& link) { return link.b.kind != NodeKind::package; });
  if (topology.gpus().size() < 2 || has_links) return std::nullopt;
  for (const Gpu& gpu : topology.gpus()) {
    const auto is_in_name = [&](std::string_view word) {
      return gpu.model.find(word) != std::string::npos;
    };
    if (std::ranges::any_of(kModules, is_in_name) && std::ranges::none_of(kOthers, is_in_name)) {
      return gpu.model;
    }
  }
  return std::nullopt;
}

NearestNics nearest_nics(const Topology& topology, std::uint32_t gpu) {
  return nearest_nics(topology, gpu, topology.fabric_nics());
}

NearestNics nearest_nics(const Topology& topology,
                         std::uint32_t gpu,
                         std::span<const std::uint32_t> nics) {
  struct Candidate {
    PathClass path_class;
    std::uint32_t bridges;
    bool operator==(const Candidate&) const = default;
    auto operator<=>(const Candidate&) const = default;
  };
  NearestNics nearest;
  std::optional<Candidate> best;
  for (const std::uint32_t nic : nics) {
    const Path path = pci_path(topology, {NodeKind::gpu, gpu}, {NodeKind::nic, nic});
    const bool bridges_count = path.path_class < PathClass::phb;
    const Candidate candidate{path.path_class, bridges_count ? path.bridges : 0};
    if (!best || candidate < *best) {
      best = candidate;
      nearest.nics.clear();
    }
    if (candidate == *best) nearest.nics.push_back(nic);
  }
  if (best) nearest.path_class = best->path_class;
  return nearest;
}

}  // namespace xylem::topology
