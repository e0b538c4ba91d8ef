// SPDX-License-Identifier: Apache-2.0
#include "graph.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace xylem::topology {
namespace {

std::uint32_t distance_of(const Path& path) {
  switch (path.path_class) {
    case PathClass::loc:
    case PathClass::nvl: return 0;
    case PathClass::pix: return 1;
    case PathClass::pxb: return 2;
    case PathClass::phb: return 4;
    case PathClass::node: return 8;
    case PathClass::sys:
    case PathClass::unknown: break;
  }
  return 16;
}

}  // namespace

/// Collects the links between nodes of the machine, and then merges each chain of links into one
/// link.
class Graph::Builder {
 public:
  Builder(const Topology& topology, std::span<const std::uint32_t> gpus) : topology_(topology) {
    for (const std::uint32_t gpu : gpus) vertex_of({VertexKind::device, {NodeKind::gpu, gpu}});
    gpus_ = gpus;
  }

  /// Adds NVLink and XGMI. All NVSwitches of a host become one vertex, since hardware makes them
  /// one fabric and no source reports the links between them.
  void add_fast_links() {
    struct Reach {
      std::vector<NodeRef> switches;
      Way way{0, true, false};
    };
    std::map<std::uint32_t, Reach> reaches;  // For each GPU, the NVSwitches that it reaches.
    for (const Link& link : topology_.links()) {
      if (!has(link.a)) continue;
      const Way way = way_over(link.rate, true);
      if (link.b.kind == NodeKind::nvswitch) {
        Reach& reach = reaches[link.a.index];
        reach.switches.push_back(link.b);
        reach.way.capacity += way.capacity;
        reach.way.has_unknown = reach.way.has_unknown || way.has_unknown;
      } else if (link.b.kind == NodeKind::package || has(link.b)) {
        join(vertex_of({VertexKind::device, link.a}), vertex_of({VertexKind::device, link.b}), way);
      }
    }
    for (auto& [gpu, reach] : reaches) {
      // If two GPUs reach different switches, there are unreported links between these switches.
      const bool is_same = reach.switches == reaches.begin()->second.switches;
      reach.way.has_unknown = reach.way.has_unknown || !is_same;
      join(vertex_of({VertexKind::device, {NodeKind::gpu, gpu}}),
           vertex_of({VertexKind::nvswitches, {}}), reach.way);
    }
  }

  /// Adds the PCIe trees above the GPUs, and the packages that connect the trees.
  void add_pcie() {
    for (const std::uint32_t gpu : gpus_) {
      NodeRef node{NodeKind::gpu, gpu};
      std::uint32_t below = vertex_of({VertexKind::device, node});
      const PciDevice* pci = &topology_.gpus()[gpu].pci;
      while (pci != nullptr) {
        const Way uplink = way_over(pci->uplink, false);
        if (!pci->parent) {
          join(below, place_of(pci->numa), uplink);
          break;
        }
        node = *pci->parent;
        const bool is_known = vertices_.contains({VertexKind::device, node});
        const std::uint32_t above = vertex_of({VertexKind::device, node});
        join(below, above, uplink);
        if (is_known) break;
        below = above;
        if (node.kind == NodeKind::host_bridge) {
          join(below, place_of(topology_.host_bridges()[node.index].numa), {});
          break;
        }
        pci = &topology_.bridges()[node.index].pci;
      }
    }
  }

  /// Stores the result in `graph`.
  void finish(Graph& graph) {
    while (contract()) {
    }
    std::vector<std::uint32_t> number(count_, 0);
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const bool is_gpu = i < gpus_.size();
      if (is_gpu || degree_[i] > 0) number[i] = used++;
    }
    graph.out_.resize(used);
    for (const auto& [ends, way] : links_) {
      const std::uint32_t a = number[ends.first], b = number[ends.second];
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        graph.out_[from].push_back(static_cast<std::uint32_t>(graph.edges_.size()));
        graph.edges_.push_back({from, to, way.capacity, way.is_fast, way.has_unknown});
      }
    }
  }

 private:
  enum class VertexKind : std::uint8_t { device, nvswitches, host };
  using Vertex = std::pair<VertexKind, NodeRef>;
  /// The properties of a connection, as in Edge. By default its bandwidth is unknown.
  struct Way {
    double capacity = kUnlimited;
    bool is_fast = false;
    bool has_unknown = true;
  };

  static Way way_over(const Rate& rate, bool is_fast) {
    if (!rate.bandwidth) return {kUnlimited, is_fast, true};
    return {rate.bandwidth->value, is_fast, false};
  }

  bool has(NodeRef node) const { return vertices_.contains({VertexKind::device, node}); }

  std::uint32_t vertex_of(const Vertex& vertex) {
    const auto [entry, is_new] = vertices_.try_emplace(vertex, count_);
    if (is_new) {
      ++count_;
      degree_.push_back(0);
    }
    return entry->second;
  }

  /// The vertex at which a PCIe tree is attached: its NUMA node or, if several are possible, the
  /// host.
  std::uint32_t place_of(const Locality& numa) {
    const std::uint32_t host = vertex_of({VertexKind::host, {}});
    if (numa.size() != 1) return host;
    const NodeRef node{NodeKind::numa_node, numa.front()};
    const bool is_known = vertices_.contains({VertexKind::device, node});
    const std::uint32_t vertex = vertex_of({VertexKind::device, node});
    if (is_known) return vertex;
    std::uint32_t above = host;
    if (const auto package = topology_.numa_nodes()[numa.front()].package) {
      const NodeRef owner{NodeKind::package, *package};
      above = vertex_of({VertexKind::device, owner});
      if (joined_packages_.insert(*package).second) join(above, host, {});
    }
    join(vertex, above, {});
    return vertex;
  }

  void join(std::uint32_t a, std::uint32_t b, Way way) {
    if (a > b) std::swap(a, b);
    links_.emplace(std::pair(a, b), way);
    ++degree_[a];
    ++degree_[b];
  }

  /// Removes vertices that are not GPUs and have at most two links, and merges their links. Of two
  /// adjacent vertices, one call removes only one. Returns false if there was nothing to remove.
  bool contract() {
    bool did = false;
    std::vector<std::vector<decltype(links_)::iterator>> at(count_);
    for (auto link = links_.begin(); link != links_.end(); ++link) {
      at[link->first.first].push_back(link);
      at[link->first.second].push_back(link);
    }
    std::vector<bool> touched(count_, false);
    for (auto vertex = static_cast<std::uint32_t>(gpus_.size()); vertex < count_; ++vertex) {
      if (touched[vertex] || at[vertex].empty() || at[vertex].size() > 2) continue;
      std::vector<std::uint32_t> ends;
      Way way{kUnlimited, true, false};
      for (const auto& link : at[vertex]) {
        const auto [a, b] = link->first;
        ends.push_back(a == vertex ? b : a);
        way.capacity = std::min(way.capacity, link->second.capacity);
        way.is_fast = way.is_fast && link->second.is_fast;
        way.has_unknown = way.has_unknown || link->second.has_unknown;
      }
      if (std::ranges::any_of(ends, [&](std::uint32_t end) { return touched[end]; })) continue;
      for (const auto& link : at[vertex]) {
        --degree_[link->first.first];
        --degree_[link->first.second];
        links_.erase(link);
      }
      touched[vertex] = true;
      for (const std::uint32_t end : ends) touched[end] = true;
      if (ends.size() == 2 && ends[0] != ends[1]) join(ends[0], ends[1], way);
      did = true;
    }
    return did;
  }

  const Topology& topology_;
  std::span<const std::uint32_t> gpus_;
  std::map<Vertex, std::uint32_t> vertices_;
  std::uint32_t count_ = 0;
  std::vector<std::uint32_t> degree_;
  std::set<std::uint32_t> joined_packages_;
  std::multimap<std::pair<std::uint32_t, std::uint32_t>, Way> links_;
};

Graph::Graph(const Topology& topology, std::span<const std::uint32_t> gpus, GraphLinks links)
    : gpus_(static_cast<std::uint32_t>(gpus.size())) {
  Builder builder(topology, gpus);
  if (links != GraphLinks::pcie) builder.add_fast_links();
  if (links != GraphLinks::fast) builder.add_pcie();
  builder.finish(*this);

  routes_.resize(std::size_t{gpus_} * gpus_);
  distances_.resize(std::size_t{gpus_} * gpus_);
  for (std::uint32_t a = 0; a < gpus_; ++a) {
    find_routes(a);
    for (std::uint32_t b = 0; b < gpus_; ++b) {
      if (a == b) continue;
      distances_[std::size_t{a} * gpus_ + b] =
          distance_of(path(topology, {NodeKind::gpu, gpus[a]}, {NodeKind::gpu, gpus[b]}));
    }
  }
}

/// Finds the best route from GPU `from` to every GPU: with the fewest PCIe links, then with the
/// fewest links, then with the highest bandwidth. GPUs do not forward data, so no route passes
/// through one.
void Graph::find_routes(std::uint32_t from) {
  struct Cost {
    std::uint32_t slow = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t hops = 0;
    double narrowness = 0;  ///< The negated width, so that a wider route costs less.
    auto operator<=>(const Cost&) const = default;
  };
  using Entry = std::pair<Cost, std::uint32_t>;  // The cost, and the vertex.
  std::vector<Cost> costs(vertices());
  std::vector<std::uint32_t> by(vertices(), 0);  // The edge by which each vertex is reached.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  costs[from] = {0, 0, -kUnlimited};
  open.emplace(costs[from], from);
  while (!open.empty()) {
    const auto [cost, at] = open.top();
    open.pop();
    if (cost != costs[at] || (at != from && at < gpus_)) continue;
    for (const std::uint32_t index : out_[at]) {
      const Edge& edge = edges_[index];
      const Cost next{cost.slow + (edge.is_fast ? 0 : 1), cost.hops + 1,
                      std::max(cost.narrowness, -edge.capacity)};
      if (next >= costs[edge.to]) continue;
      costs[edge.to] = next;
      by[edge.to] = index;
      open.emplace(next, edge.to);
    }
  }
  for (std::uint32_t to = 0; to < gpus_; ++to) {
    if (to == from || costs[to] == Cost{}) continue;
    auto& route = routes_[std::size_t{from} * gpus_ + to];
    for (std::uint32_t at = to; at != from; at = edges_[by[at]].from) route.push_back(by[at]);
  }
}

bool Graph::are_twins(std::uint32_t a, std::uint32_t b) const {
  const auto neighbours = [&](std::uint32_t self, std::uint32_t other) {
    std::vector<std::tuple<std::uint32_t, double, bool>> all;
    for (const std::uint32_t index : out_[self]) {
      const Edge& edge = edges_[index];
      if (edge.to != other) all.emplace_back(edge.to, edge.capacity, edge.is_fast);
    }
    std::ranges::sort(all);
    return all;
  };
  if (neighbours(a, b) != neighbours(b, a)) return false;
  for (std::uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    if (gpu != a && gpu != b && distance(a, gpu) != distance(b, gpu)) return false;
  }
  return true;
}

bool Graph::is_connected() const {
  if (gpus_ == 0) return true;
  std::vector<bool> seen(vertices(), false);
  std::vector<std::uint32_t> open{0};
  seen[0] = true;
  std::uint32_t found = 0;
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    found += at < gpus_ ? 1 : 0;
    for (const std::uint32_t edge : out_[at]) {
      const std::uint32_t to = edges_[edge].to;
      if (!seen[to]) open.push_back(to);
      seen[to] = true;
    }
  }
  return found == gpus_;
}

}  // namespace xylem::topology
