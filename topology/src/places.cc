// SPDX-License-Identifier: Apache-2.0
#include "places.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace xylem::topology {
namespace {

class Arrangement {
 public:
  Arrangement(const Topology& topology, Folding folding) : topology_(topology), folding_(folding) {
    index_children();
  }

  Place host() const {
    Place root;
    for (std::uint32_t i = 0; i < topology_.packages().size(); ++i) {
      root.children.push_back(package(i));
    }
    for (std::uint32_t i = 0; i < topology_.numa_nodes().size(); ++i) {
      if (!topology_.numa_nodes()[i].package) root.children.push_back(numa_node(i));
    }
    if (trees_.contains({})) {
      Place& unknown = root.children.emplace_back();
      add_trees(unknown, {});
    }
    return root;
  }

 private:
  /// What a PCIe tree is attached to: a NUMA node, a package, or neither.
  struct Root {
    std::optional<std::uint32_t> numa;
    std::optional<std::uint32_t> package;
    auto operator<=>(const Root&) const = default;
  };

  void index_children() {
    for (std::uint32_t i = 0; i < topology_.host_bridges().size(); ++i) {
      trees_[root_of(topology_.host_bridges()[i].numa)].push_back({NodeKind::host_bridge, i});
    }
    add_all(topology_.bridges(), NodeKind::bridge);
    add_all(topology_.gpus(), NodeKind::gpu);
    add_all(topology_.nics(), NodeKind::nic);
    add_all(topology_.nvswitches(), NodeKind::nvswitch);
    for (auto& [parent, children] : below_) {
      std::ranges::sort(children, [&](NodeRef left, NodeRef right) {
        return std::tuple(topology_.pci(left).address, left) <
               std::tuple(topology_.pci(right).address, right);
      });
    }
  }

  template <typename Device>
  void add_all(const std::vector<Device>& devices, NodeKind kind) {
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
      const PciDevice& pci = devices[i].pci;
      (pci.parent ? below_[*pci.parent] : trees_[root_of(pci.numa)]).push_back({kind, i});
    }
  }

  Root root_of(const Locality& numa) const {
    const auto& nodes = topology_.numa_nodes();
    const auto package = nodes[numa.front()].package;
    if (numa.size() == 1) return {numa.front(), package};
    const bool same = std::ranges::all_of(
        numa, [&](std::uint32_t node) { return nodes[node].package == package; });
    return {std::nullopt, same ? package : std::nullopt};
  }

  Place package(std::uint32_t index) const {
    Place place{NodeRef{NodeKind::package, index}, {}};
    for (std::uint32_t i = 0; i < topology_.numa_nodes().size(); ++i) {
      if (topology_.numa_nodes()[i].package == index) place.children.push_back(numa_node(i));
    }
    add_trees(place, {std::nullopt, index});
    return place;
  }

  Place numa_node(std::uint32_t index) const {
    Place place{NodeRef{NodeKind::numa_node, index}, {}};
    add_trees(place, {index, topology_.numa_nodes()[index].package});
    return place;
  }

  void add_trees(Place& place, const Root& root) const {
    const auto at = trees_.find(root);
    if (at == trees_.end()) return;
    for (const NodeRef node : at->second) place.children.push_back(pci_tree(node));
  }

  /// The place of a node of a PCIe tree and of all that is below it. The recursion is limited by
  /// kMaxBridgeDepth.
  Place pci_tree(NodeRef node) const {
    Place place{node, {}};
    const auto below = below_.find(node);
    if (below != below_.end()) {
      for (const NodeRef child : below->second) place.children.push_back(pci_tree(child));
    }
    const bool is_single = node.kind == NodeKind::bridge && place.children.size() == 1;
    if (is_single && folding_ == Folding::single_bridges) {
      Place only = std::move(place.children.front());
      return only;
    }
    return place;
  }

  const Topology& topology_;
  const Folding folding_;
  /// For each Root, the topmost nodes of the PCIe trees that are attached to it.
  std::map<Root, std::vector<NodeRef>> trees_;
  /// The children of each parent, ordered by address.
  std::map<NodeRef, std::vector<NodeRef>> below_;
};

}  // namespace

Place places_of(const Topology& topology, Folding folding) {
  return Arrangement(topology, folding).host();
}

}  // namespace xylem::topology
