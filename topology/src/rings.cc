// SPDX-License-Identifier: Apache-2.0
//
// Plans rings: decides at which rates to search for rings, and when to stop.
#include "xylem/topology/rings.h"

#include "graph.h"
#include "ring_search.h"
#include "xylem/base/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace xylem::topology {
namespace {

/// The largest number of channels in a schedule.
constexpr std::uint32_t kMostChannels = 16;
/// Steps of one search. On real hosts a search finishes after far fewer steps.
constexpr std::uint64_t kRingSteps = 200'000;
constexpr std::uint64_t kChannelSteps = 50'000;
/// Number of attempts to find a set of rings, each at another rate.
constexpr int kMostAttempts = 12;

std::vector<std::uint32_t> all_gpus(const Topology& topology) {
  std::vector<std::uint32_t> gpus(topology.gpus().size());
  std::iota(gpus.begin(), gpus.end(), 0U);
  return gpus;
}

/// Rates at which one more hop fits on some link: each capacity divided by 1, 2, … `most`. Highest
/// first.
std::vector<double> rates_of(const Graph& graph, std::uint32_t most) {
  std::vector<double> capacities;
  for (const Graph::Edge& edge : graph.edges()) {
    if (edge.capacity != Graph::kUnlimited) capacities.push_back(edge.capacity);
  }
  const auto sort_unique = [](std::vector<double>& values) {
    std::ranges::sort(values, std::greater<>());
    const auto same = [](double a, double b) { return a - b <= kRounding * a; };
    values.erase(std::ranges::unique(values, same).begin(), values.end());
  };
  sort_unique(capacities);
  std::vector<double> rates;
  for (const double capacity : capacities) {
    for (std::uint32_t parts = 1; parts <= most; ++parts) rates.push_back(capacity / parts);
  }
  sort_unique(rates);
  return rates;
}

/// How rings that run at the same time share the links.
struct Load {
  std::optional<double> rate;  ///< The rate that every ring can have.
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
    load.is_bound = load.is_bound || graph.edges()[edge].has_unknown;
    if (capacity != Graph::kUnlimited) {
      load.rate = std::min(load.rate.value_or(Graph::kUnlimited), capacity / hops[edge]);
    }
  }
  return load;
}

/// Finds a ring of the highest rate by a binary search over the rates: if a rate has a ring, every
/// lower rate has one, too. RingFound::is_exact of the result says whether its rate is certainly
/// the highest.
RingFound best_ring(const SearchSpace& space) {
  const Graph& graph = space.graph();
  std::vector<double> rates = rates_of(graph, graph.gpus());
  const double cut = graph.narrowest_cut();  // Every ring crosses every cut.
  std::erase_if(rates, [&](double rate) { return rate > cut * (1 + kRounding); });
  std::size_t low = 0, high = rates.size();  // Rates from `high` on have rings.
  bool is_exact = true;  // Whether the rate before `high` certainly has no ring.
  RingFound best = find_ring(space, 0, kRingSteps);
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    RingFound found = find_ring(space, rates[middle], kRingSteps);
    if (found.is_none()) {
      low = middle + 1;
      is_exact = found.is_exact;
    } else {
      high = middle;
      best = std::move(found);
    }
  }
  best.is_exact = best.is_exact && is_exact;
  return best;
}

/// Rings that together carry more than a single ring, whose rate is `alone`; empty if there are
/// none.
std::vector<std::vector<std::uint32_t>> more_rings(const SearchSpace& space, double alone) {
  const Graph& graph = space.graph();
  struct Attempt {
    double rate;
    std::uint32_t rings;
    double total() const { return rate * rings; }
  };
  const double cut = graph.narrowest_cut();
  // On links that limit nothing, any number of rings would fit.
  if (alone >= cut * (1 - kRounding) || cut == Graph::kUnlimited) return {};
  std::vector<Attempt> attempts;
  constexpr std::uint32_t kParts = 4;
  for (const double rate : rates_of(graph, kParts)) {
    const double fit = std::floor(cut / rate * (1 + kRounding));
    if (fit >= 2)
      attempts.push_back({rate, static_cast<std::uint32_t>(std::min<double>(fit, kMostChannels))});
  }
  // Highest total first and, for equal totals, fewest rings.
  std::ranges::sort(attempts, [](const Attempt& a, const Attempt& b) {
    return std::tuple(-a.total(), a.rings) < std::tuple(-b.total(), b.rings);
  });
  std::vector<std::vector<std::uint32_t>> best;
  double most = alone;
  int tried = 0;
  for (const Attempt& attempt : attempts) {
    if (attempt.total() < most * (1 - kRounding) || tried++ == kMostAttempts) break;
    auto rings = find_rings(space, attempt.rate, attempt.rings, kChannelSteps);
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

/// The graph over which rings are planned, and its kind.
struct Chosen {
  Graph graph;
  GpuFabric fabric;
  bool is_exact = true;  ///< False if the search for a ring over fast links stopped early.
};

Chosen choose_graph(const Topology& topology, std::span<const std::uint32_t> gpus) {
  Graph fast(topology, gpus, GraphLinks::fast);
  if (gpus.size() < 2) return {std::move(fast), GpuFabric::none};
  RingFound ring;
  if (fast.is_connected()) ring = find_ring(SearchSpace(fast), 0, kRingSteps);
  const double pcie = Graph(topology, gpus, GraphLinks::pcie).narrowest_cut();
  const bool is_slower = pcie != Graph::kUnlimited && pcie > fast.narrowest_cut();
  if (ring.is_none() || is_slower) {
    return {Graph(topology, gpus, GraphLinks::all), GpuFabric::pcie, ring.is_exact};
  }
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

RingPlan plan_rings(const Topology& topology) { return plan_rings(topology, all_gpus(topology)); }

RingPlan plan_rings(const Topology& topology, std::span<const std::uint32_t> gpus) {
  check_gpus(topology, gpus);
  RingPlan plan;
  if (gpus.size() > kMostSearchedGpus) {
    plan.fabric = GpuFabric::unknown;
    plan.best.gpus.assign(gpus.begin(), gpus.end());
    plan.best_is_exact = false;
    plan.channels = {plan.best};
    plan.bandwidth_is_bound = true;
    return plan;
  }
  const auto [graph, fabric, fabric_is_exact] = choose_graph(topology, gpus);
  plan.fabric = fabric;
  if (fabric == GpuFabric::none) {
    plan.best.gpus.assign(gpus.begin(), gpus.end());
    return plan;
  }
  const SearchSpace space(graph);
  const RingFound found = best_ring(space);
  const Load alone = load_of(graph, {found.order});
  plan.best = {named(gpus, found.order), in_gbps(alone.rate)};
  plan.best_is_exact = found.is_exact && fabric_is_exact;
  std::vector<std::vector<std::uint32_t>> rings;
  if (alone.rate) rings = more_rings(space, *alone.rate);
  if (rings.empty()) rings.push_back(found.order);
  const Load together = load_of(graph, rings);
  for (const auto& order : rings) {
    plan.channels.push_back({named(gpus, order), in_gbps(together.rate)});
  }
  if (together.rate) plan.bandwidth = GBps{*together.rate * static_cast<double>(rings.size())};
  plan.bandwidth_is_bound = together.is_bound;
  return plan;
}

BandwidthBounds bandwidth_bounds(const Topology& topology) {
  return bandwidth_bounds(topology, all_gpus(topology));
}

BandwidthBounds bandwidth_bounds(const Topology& topology, std::span<const std::uint32_t> gpus) {
  check_gpus(topology, gpus);
  if (gpus.size() < 2 || gpus.size() > kMostSearchedGpus) return {};
  const Graph graph = choose_graph(topology, gpus).graph;
  return {in_gbps(graph.all_gather_bound()), in_gbps(graph.all_reduce_bound())};
}

}  // namespace xylem::topology
