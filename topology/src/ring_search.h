// SPDX-License-Identifier: Apache-2.0
//
// Searches for rings in a Graph: depth-first over the hops for which all edges still have
// bandwidth, with a limited number of steps.
#pragma once

#include "graph.h"

#include <cstdint>
#include <vector>

namespace xylem::topology {

/// The slots of each edge: the number of further hops of a given rate for which it has bandwidth.
/// (They are not the slots of shared memory.)
class Slots {
 public:
  Slots(const Graph& graph, double rate);

  bool fits(std::uint32_t a, std::uint32_t b) const;
  /// Takes one slot of each edge on the route. Requires fits(a, b).
  void take(std::uint32_t a, std::uint32_t b);
  void give_back(std::uint32_t a, std::uint32_t b);
  /// An upper bound for the number of further rings: each further ring needs a slot into every GPU
  /// and a slot out of it.
  std::uint32_t rings_left() const;

 private:
  const Graph& graph_;
  std::vector<std::uint32_t> left_;  ///< The number of slots left on each edge.
};

/// Data that all searches in one graph share.
class SearchSpace {
 public:
  explicit SearchSpace(const Graph& graph);

  const Graph& graph() const noexcept { return graph_; }
  /// The GPUs that `gpu` can reach, nearest first.
  const std::vector<std::uint32_t>& neighbours(std::uint32_t gpu) const { return neighbours_[gpu]; }
  /// The first GPU that can be exchanged with `gpu` without changing the graph; `gpu` itself if
  /// there is none before it.
  std::uint32_t first_twin(std::uint32_t gpu) const { return twins_[gpu]; }
  /// A lower bound for the sum of the distances in a ring.
  std::uint64_t least_length() const noexcept { return least_length_; }

 private:
  const Graph& graph_;
  std::vector<std::vector<std::uint32_t>> neighbours_;
  std::vector<std::uint32_t> twins_;
  std::uint64_t least_length_;
};

struct RingFound {
  std::vector<std::uint32_t> order;  ///< The vertices, beginning with 0. Empty: no ring was found.
  bool is_exact = true;              ///< False if the search stopped early.

  bool is_none() const noexcept { return order.empty(); }
};

/// The ring with the smallest total distance among those in which every hop carries `rate` GB/s.
/// Every hop can carry a rate of 0. The lower the rate, the more rings there are. `steps` limits
/// the search.
RingFound find_ring(const SearchSpace& space, double rate, std::uint64_t steps);

/// Finds rings that can run at the same time at `rate` GB/s each: as many as possible, up to
/// `most`. `steps` limits the search.
std::vector<std::vector<std::uint32_t>> find_rings(const SearchSpace& space,
                                                   double rate,
                                                   std::uint32_t most,
                                                   std::uint64_t steps);

}  // namespace xylem::topology
