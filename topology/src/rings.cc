// SPDX-License-Identifier: Apache-2.0
//
// Which rate to search at, and when to stop.
#include "xylem/topology/rings.h"

#include "enum_names.h"
#include "graph.h"
#include "ring_search.h"
#include "xylem/base/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace xylem::topology {
namespace {

/// As many channels as a plan may have; NCCL's limit, too.
constexpr std::uint32_t kMostChannels = 32;
/// Steps of a search that ends by itself on real hosts; together well below a second.
constexpr std::uint64_t kRingSteps = 400'000;
constexpr std::uint64_t kChannelSteps = 400'000;
constexpr std::uint64_t kTreeSteps = 200'000;
/// Attempts at different rates that come to no end.
constexpr int kMostFailures = 3;
/// Bandwidths closer than this are one.
constexpr double kRounding = 1e-9;

std::vector<std::uint32_t> all_gpus(const Topology& topology) {
  std::vector<std::uint32_t> gpus(topology.gpus().size());
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

/// Rates at which another hop fits on some link: capacities by 1, 2, … `most`. Highest first.
std::vector<double> rates_of(const Graph& graph, std::uint32_t most) {
  std::vector<double> capacities;
  for (const Graph::Edge& edge : graph.edges()) {
    if (edge.capacity != Graph::kUnlimited) capacities.push_back(edge.capacity);
  }
  const auto settle = [](std::vector<double>& values) {
    std::ranges::sort(values, std::greater<>());
    const auto same = [](double a, double b) { return a - b <= kRounding * a; };
    values.erase(std::ranges::unique(values, same).begin(), values.end());
  };
  settle(capacities);
  std::vector<double> rates;
  for (const double capacity : capacities) {
    for (std::uint32_t parts = 1; parts <= most; ++parts) rates.push_back(capacity / parts);
  }
  settle(rates);
  return rates;
}

/// What rings that run at once leave each other.
struct Load {
  std::optional<double> rate;  ///< That all can have.
  bool is_bound = false;
};

Load load_of(const Graph& graph, const std::vector<std::vector<std::uint32_t>>& rings) {
  std::vector<std::uint32_t> hops(graph.edges().size(), 0);
  for (const auto& order : rings) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const std::uint32_t edge : graph.route(order[i], order[(i + 1) % order.size()])) {
        ++hops[edge];
      }
    }
  }
  Load load;
  for (std::size_t edge = 0; edge < hops.size(); ++edge) {
    if (hops[edge] == 0) continue;
    const double capacity = graph.edges()[edge].capacity;
    if (capacity == Graph::kUnlimited) {
      load.is_bound = true;
    } else {
      load.rate = std::min(load.rate.value_or(Graph::kUnlimited), capacity / hops[edge]);
    }
  }
  return load;
}

/// The best ring by itself.
RingFound best_ring(const Graph& graph) {
  const double cut = graph.narrowest_cut();
  bool is_exact = true;
  for (const double rate : rates_of(graph, graph.gpus())) {
    if (rate > cut * (1 + kRounding)) continue;  // Every ring crosses every cut.
    RingFound found = find_ring(graph, rate, kRingSteps);
    is_exact = is_exact && found.is_exact;
    if (found.order.empty()) continue;
    found.is_exact = is_exact;
    return found;
  }
  // No link tells its bandwidth, so nearness decides.
  RingFound found = find_ring(graph, kRounding, kRingSteps);
  found.is_exact = found.is_exact && is_exact;
  return found;
}

/// Rings that together carry more than one of `alone` does; else none.
std::vector<std::vector<std::uint32_t>> more_rings(const Graph& graph, double alone) {
  struct Attempt {
    double rate;
    std::uint32_t rings;
    double total() const { return rate * rings; }
  };
  const double cut = graph.narrowest_cut();
  if (alone >= cut * (1 - kRounding)) return {};
  std::vector<Attempt> attempts;
  constexpr std::uint32_t kParts = 4;
  for (const double rate : rates_of(graph, kParts)) {
    const double fit = std::floor(cut / rate * (1 + kRounding));
    if (fit >= 2)
      attempts.push_back({rate, static_cast<std::uint32_t>(std::min<double>(fit, kMostChannels))});
  }
  // The most first and, of as much, the fewest rings.
  std::ranges::sort(attempts, [](const Attempt& a, const Attempt& b) {
    if (std::abs(a.total() - b.total()) > kRounding * a.total()) return a.total() > b.total();
    return a.rings < b.rings;
  });
  std::vector<std::vector<std::uint32_t>> best;
  double most = alone;
  int failures = 0;
  for (const Attempt& attempt : attempts) {
    if (attempt.total() < most * (1 - kRounding) || failures == kMostFailures) break;
    auto rings = find_rings(graph, attempt.rate, attempt.rings, kChannelSteps);
    if (rings.size() < attempt.rings) ++failures;
    const double total = attempt.rate * static_cast<double>(rings.size());
    const bool is_more = total > most * (1 + kRounding);
    const bool is_fewer = total > most * (1 - kRounding) && rings.size() < best.size();
    if (!is_more && !is_fewer) continue;
    most = total;
    best = std::move(rings);
  }
  return best;
}

bool is_mesh(const Graph& graph) {
  const std::size_t others = graph.gpus() - 1;
  if (graph.vertices() != graph.gpus()) return false;
  return std::ranges::all_of(graph.edges(), [&](const Graph::Edge& edge) {
    return edge.capacity == graph.edges().front().capacity && graph.out(edge.from).size() == others;
  });
}

/// The graph that plans are made over, and what kind it is.
struct Chosen {
  Graph graph;
  GpuFabric fabric;
};

Chosen choose_graph(const Topology& topology, std::span<const std::uint32_t> gpus) {
  Graph fast(topology, gpus, GraphLinks::fast);
  if (gpus.size() < 2) return {std::move(fast), GpuFabric::none};
  const bool makes_a_ring =
      fast.is_connected() && !find_ring(fast, kRounding, kRingSteps).order.empty();
  if (!makes_a_ring) return {Graph(topology, gpus, GraphLinks::all), GpuFabric::pcie};
  const bool is_star =
      fast.vertices() == fast.gpus() + 1 && fast.edges().size() == 2 * std::size_t{fast.gpus()};
  const GpuFabric fabric = is_star         ? GpuFabric::nvswitch
                           : is_mesh(fast) ? GpuFabric::mesh
                                           : GpuFabric::partial;
  return {std::move(fast), fabric};
}

std::vector<std::uint32_t> named(std::span<const std::uint32_t> gpus,
                                 const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> names;
  names.reserve(order.size());
  for (const std::uint32_t vertex : order) names.push_back(gpus[vertex]);
  return names;
}

std::optional<GBps> in_gbps(std::optional<double> rate) {
  return rate ? std::optional(GBps{*rate}) : std::nullopt;
}

void check_gpus(const Topology& topology, std::span<const std::uint32_t> gpus) {
  for (const std::uint32_t gpu : gpus) XYLEM_CHECK(gpu < topology.gpus().size(), gpu);
}

}  // namespace

std::string_view name(GpuFabric fabric) noexcept { return name_of(fabric); }

RingPlan plan_rings(const Topology& topology) { return plan_rings(topology, all_gpus(topology)); }

RingPlan plan_rings(const Topology& topology, std::span<const std::uint32_t> gpus) {
  check_gpus(topology, gpus);
  RingPlan plan;
  if (gpus.size() > kMostSearchedGpus) {
    plan.fabric = GpuFabric::pcie;
    plan.best.gpus.assign(gpus.begin(), gpus.end());
    plan.best_is_exact = false;
    plan.channels = {plan.best};
    plan.bandwidth_is_bound = true;
    return plan;
  }
  const auto [graph, fabric] = choose_graph(topology, gpus);
  plan.fabric = fabric;
  if (fabric == GpuFabric::none) {
    plan.best.gpus.assign(gpus.begin(), gpus.end());
    return plan;
  }
  const RingFound found = best_ring(graph);
  const Load alone = load_of(graph, {found.order});
  plan.best = {named(gpus, found.order), in_gbps(alone.rate)};
  plan.best_is_exact = found.is_exact;
  std::vector<std::vector<std::uint32_t>> rings;
  if (alone.rate) rings = more_rings(graph, *alone.rate);
  if (rings.empty()) rings.push_back(found.order);
  const Load together = load_of(graph, rings);
  for (const auto& order : rings) {
    plan.channels.push_back({named(gpus, order), in_gbps(together.rate)});
  }
  if (together.rate) plan.bandwidth = GBps{*together.rate * static_cast<double>(rings.size())};
  plan.bandwidth_is_bound = together.is_bound;
  return plan;
}

TreePlan plan_tree(const Topology& topology) { return plan_tree(topology, all_gpus(topology)); }

TreePlan plan_tree(const Topology& topology, std::span<const std::uint32_t> gpus) {
  check_gpus(topology, gpus);
  TreePlan plan;
  plan.parents.assign(gpus.size(), std::nullopt);
  if (!gpus.empty()) plan.root = gpus.front();
  if (gpus.size() > kMostSearchedGpus) {
    for (std::size_t i = 1; i < gpus.size(); ++i) plan.parents[i] = gpus[i - 1];
    plan.depth = static_cast<std::uint32_t>(gpus.size() - 1);
    plan.is_exact = false;
    return plan;
  }
  const auto [graph, fabric] = choose_graph(topology, gpus);
  if (fabric == GpuFabric::none) return plan;
  const double cut = graph.narrowest_cut();
  auto rates = rates_of(graph, graph.gpus());
  rates.push_back(kRounding);
  for (const double rate : rates) {
    if (rate > cut * (1 + kRounding)) continue;
    TreeFound found = find_tree(graph, rate, kTreeSteps);
    plan.is_exact = plan.is_exact && found.is_exact;
    if (found.parents.empty()) continue;
    plan.root = gpus[found.root];
    plan.depth = found.depth;
    if (rate > kRounding) plan.bandwidth = GBps{rate};
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (found.parents[i]) plan.parents[i] = gpus[*found.parents[i]];
    }
    break;
  }
  return plan;
}

BandwidthBounds bandwidth_bounds(const Topology& topology) {
  return bandwidth_bounds(topology, all_gpus(topology));
}

BandwidthBounds bandwidth_bounds(const Topology& topology, std::span<const std::uint32_t> gpus) {
  check_gpus(topology, gpus);
  if (gpus.size() < 2 || gpus.size() > kMostSearchedGpus) return {};
  const auto [graph, fabric] = choose_graph(topology, gpus);
  return {in_gbps(graph.all_gather_bound()), in_gbps(graph.all_reduce_bound())};
}

}  // namespace xylem::topology
