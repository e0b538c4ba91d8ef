// SPDX-License-Identifier: Apache-2.0
#include "ring_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace xylem::topology {
namespace {

/// An edge never needs more slots (ring_search.h) than this.
constexpr double kManySlots = 1 << 20;

/// A limit on the number of steps of a search.
class Steps {
 public:
  explicit Steps(std::uint64_t most) : left_(most) {}
  /// Counts one step. Returns false if no steps are left.
  bool take() {
    if (left_ > 0) --left_;
    return left_ > 0;
  }
  bool are_used_up() const { return left_ == 0; }

 private:
  std::uint64_t left_;
};

/// The other GPUs that each GPU can reach, nearest first.
std::vector<std::vector<std::uint32_t>> neighbours_of(const Graph& graph) {
  std::vector<std::vector<std::uint32_t>> all(graph.gpus());
  for (std::uint32_t a = 0; a < graph.gpus(); ++a) {
    for (std::uint32_t b = 0; b < graph.gpus(); ++b) {
      if (a != b && !graph.route(a, b).empty()) all[a].push_back(b);
    }
    std::ranges::stable_sort(all[a], {}, [&](std::uint32_t b) { return graph.distance(a, b); });
  }
  return all;
}

/// A lower bound for the length of a ring. A ring without its longest hop spans all GPUs, so it is
/// at least as long as the shortest spanning tree, and its longest hop is at least as long as the
/// longest hop of that tree.
std::uint64_t least_length_of(const Graph& graph) {
  constexpr auto kFar = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> distance(graph.gpus(), kFar);
  std::vector<bool> is_in(graph.gpus(), false);
  distance[0] = 0;
  std::uint64_t length = 0;
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < graph.gpus(); ++i) {
    std::uint32_t nearest = kFar;
    for (std::uint32_t gpu = 0; gpu < graph.gpus(); ++gpu) {
      if (!is_in[gpu] && (nearest == kFar || distance[gpu] < distance[nearest])) nearest = gpu;
    }
    is_in[nearest] = true;
    if (distance[nearest] == kFar) return 0;
    length += distance[nearest];
    longest = std::max(longest, distance[nearest]);
    for (std::uint32_t gpu = 0; gpu < graph.gpus(); ++gpu) {
      if (is_in[gpu] || graph.route(nearest, gpu).empty()) continue;
      distance[gpu] = std::min(distance[gpu], graph.distance(nearest, gpu));
    }
  }
  return length + longest;
}

std::vector<std::uint32_t> twins_of(const Graph& graph) {
  std::vector<std::uint32_t> first(graph.gpus());
  std::iota(first.begin(), first.end(), 0U);
  for (std::uint32_t vertex = 1; vertex < graph.gpus(); ++vertex) {
    for (std::uint32_t other = 0; other < vertex; ++other) {
      if (first[other] != other || !graph.are_twins(other, vertex)) continue;
      first[vertex] = other;
      break;
    }
  }
  return first;
}

/// True if an earlier twin of `vertex` is unused, too. Then it is enough to try the earlier twin,
/// which leads to equivalent rings.
bool is_repeated(const SearchSpace& space, const std::vector<bool>& is_used, std::uint32_t vertex) {
  const std::uint32_t first = space.first_twin(vertex);
  for (std::uint32_t other = first; other < vertex; ++other) {
    if (space.first_twin(other) == first && !is_used[other]) return true;
  }
  return false;
}

/// Searches for one ring by branch and bound over its order.
class OneRing {
 public:
  OneRing(const SearchSpace& space, double rate, std::uint64_t steps)
      : space_(space),
        graph_(space.graph()),
        slots_(graph_, rate),
        steps_(steps),
        is_used_(graph_.gpus(), false) {}

  RingFound run() {
    order_.push_back(0);
    is_used_[0] = true;
    extend(0);
    return {best_, !steps_.are_used_up() || best_length_ == space_.least_length()};
  }

 private:
  /// Extends the part of a ring in order_, whose hops have this total length. Returns false if the
  /// whole search must stop.
  bool extend(std::uint64_t length) {
    if (!steps_.take()) return false;
    const std::uint32_t at = order_.back();
    if (order_.size() == graph_.gpus()) return close(at, length);
    for (const std::uint32_t next : space_.neighbours(at)) {
      const std::uint64_t longer = length + graph_.distance(at, next);
      if (longer >= best_length_) break;  // All further neighbours are at least as far.
      if (is_used_[next] || is_repeated(space_, is_used_, next) || !slots_.fits(at, next)) continue;
      slots_.take(at, next);
      is_used_[next] = true;
      order_.push_back(next);
      const bool go_on = extend(longer);
      order_.pop_back();
      is_used_[next] = false;
      slots_.give_back(at, next);
      if (!go_on) return false;
    }
    return true;
  }

  bool close(std::uint32_t at, std::uint64_t length) {
    if (!slots_.fits(at, 0)) return true;
    length += graph_.distance(at, 0);
    if (length >= best_length_) return true;
    best_length_ = length;
    best_ = order_;
    return length > space_.least_length();
  }

  const SearchSpace& space_;
  const Graph& graph_;
  Slots slots_;
  Steps steps_;
  std::vector<bool> is_used_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> best_;
  std::uint64_t best_length_ = std::numeric_limits<std::uint64_t>::max();
};

/// Searches for several rings, one after the other. The first hop of each ring must lead to the
/// same neighbour as that of the previous ring, or to a later one, so that a set of rings is found
/// in one order only.
class ManyRings {
 public:
  ManyRings(const SearchSpace& space, double rate, std::uint32_t most, std::uint64_t steps)
      : space_(space),
        graph_(space.graph()),
        slots_(graph_, rate),
        steps_(steps),
        most_(most),
        is_used_(graph_.gpus(), false) {}

  std::vector<std::vector<std::uint32_t>> run() {
    begin(0);
    return best_;
  }

 private:
  bool begin(std::size_t first) {
    if (rings_.size() > best_.size()) best_ = rings_;
    if (best_.size() == most_) return false;
    if (rings_.size() + slots_.rings_left() <= best_.size()) return true;
    is_used_.assign(graph_.gpus(), false);
    is_used_[0] = true;
    order_.assign(1, 0);
    first_ = first;
    return extend();
  }

  bool extend() {
    if (!steps_.take()) return false;
    const std::uint32_t at = order_.back();
    if (order_.size() == graph_.gpus()) return close(at);
    const auto& neighbours = space_.neighbours(at);
    const bool is_first = order_.size() == 1;
    for (std::size_t i = is_first ? first_ : 0; i < neighbours.size(); ++i) {
      const std::uint32_t next = neighbours[i];
      if (is_used_[next] || !slots_.fits(at, next)) continue;
      if (is_first) first_ = i;
      slots_.take(at, next);
      is_used_[next] = true;
      order_.push_back(next);
      const bool go_on = extend();
      order_.pop_back();
      is_used_[next] = false;
      slots_.give_back(at, next);
      if (!go_on) return false;
    }
    return true;
  }

  bool close(std::uint32_t at) {
    if (!slots_.fits(at, 0)) return true;
    slots_.take(at, 0);
    rings_.push_back(order_);
    const auto order = order_;
    const auto is_used = is_used_;
    const std::size_t first = first_;
    const bool go_on = begin(first);
    order_ = order;
    is_used_ = is_used;
    first_ = first;
    rings_.pop_back();
    slots_.give_back(at, 0);
    return go_on;
  }

  const SearchSpace& space_;
  const Graph& graph_;
  Slots slots_;
  Steps steps_;
  const std::uint32_t most_;
  std::vector<bool> is_used_;
  std::vector<std::uint32_t> order_;
  std::size_t first_ = 0;  ///< Position of the ring's second GPU among the neighbours of the first.
  std::vector<std::vector<std::uint32_t>> rings_, best_;
};

}  // namespace

Slots::Slots(const Graph& graph, double rate) : graph_(graph) {
  left_.reserve(graph.edges().size());
  for (const Graph::Edge& edge : graph.edges()) {
    const double slots = std::floor(edge.capacity / rate * (1 + kRounding));
    left_.push_back(static_cast<std::uint32_t>(std::min(slots, kManySlots)));
  }
}

bool Slots::fits(std::uint32_t a, std::uint32_t b) const {
  const auto route = graph_.route(a, b);
  return !route.empty() &&
         std::ranges::all_of(route, [&](std::uint32_t edge) { return left_[edge] > 0; });
}

void Slots::take(std::uint32_t a, std::uint32_t b) {
  for (const std::uint32_t edge : graph_.route(a, b)) --left_[edge];
}

void Slots::give_back(std::uint32_t a, std::uint32_t b) {
  for (const std::uint32_t edge : graph_.route(a, b)) ++left_[edge];
}

std::uint32_t Slots::rings_left() const {
  auto least = static_cast<std::uint64_t>(kManySlots);
  for (std::uint32_t gpu = 0; gpu < graph_.gpus(); ++gpu) {
    std::uint64_t out = 0, in = 0;
    for (const std::uint32_t edge : graph_.out(gpu)) {
      out += left_[edge];
      in += left_[edge ^ 1];
    }
    least = std::min({least, out, in});
  }
  return static_cast<std::uint32_t>(least);
}

SearchSpace::SearchSpace(const Graph& graph)
    : graph_(graph),
      neighbours_(neighbours_of(graph)),
      twins_(twins_of(graph)),
      least_length_(least_length_of(graph)) {}

RingFound find_ring(const SearchSpace& space, double rate, std::uint64_t steps) {
  return OneRing(space, rate, steps).run();
}

std::vector<std::vector<std::uint32_t>> find_rings(const SearchSpace& space,
                                                   double rate,
                                                   std::uint32_t most,
                                                   std::uint64_t steps) {
  return ManyRings(space, rate, most, steps).run();
}

}  // namespace xylem::topology
