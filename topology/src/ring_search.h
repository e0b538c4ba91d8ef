// SPDX-License-Identifier: Apache-2.0
//
// The search for rings and trees in a Graph: depth first over hops that still fit, with a bounded
// number of steps.
#pragma once

#include "graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::topology {

/// How often hops of one rate still fit on each edge.
class Slots {
 public:
  Slots(const Graph& graph, double rate);

  bool fits(std::uint32_t a, std::uint32_t b) const;
  /// Requires that it fits.
  void take(std::uint32_t a, std::uint32_t b);
  void give_back(std::uint32_t a, std::uint32_t b);
  /// How many more rings every GPU has the links for.
  std::uint32_t rings_left() const;

 private:
  const Graph& graph_;
  std::vector<std::uint32_t> left_;  ///< By edge.
};

/// What searches in one graph share.
class SearchSpace {
 public:
  explicit SearchSpace(const Graph& graph);

  const Graph& graph() const noexcept { return graph_; }
  /// The GPUs that one can reach, nearest first.
  const std::vector<std::uint32_t>& neighbours(std::uint32_t gpu) const { return neighbours_[gpu]; }
  /// The first GPU that `gpu` could swap places with unseen; itself if there is none before it.
  std::uint32_t first_twin(std::uint32_t gpu) const { return twins_[gpu]; }
  /// No ring is shorter than this, as the sum of its distances.
  std::uint64_t least_length() const noexcept { return least_length_; }

 private:
  const Graph& graph_;
  std::vector<std::vector<std::uint32_t>> neighbours_;
  std::vector<std::uint32_t> twins_;
  std::uint64_t least_length_;
};

struct RingFound {
  std::vector<std::uint32_t> order;  ///< Vertices, from 0. Empty: there is none.
  bool is_exact = true;              ///< The search came to its end.

  bool is_none() const noexcept { return order.empty(); }
};

/// The ring of the least distance among those whose every hop carries `rate` GB/s.
/// A rate of 0 fits everywhere, and the more slots a rate has, the more rings there are.
RingFound find_ring(const SearchSpace& space, double rate, std::uint64_t steps);

/// As many rings that run at once, each of `rate`, as are found, up to `most`.
std::vector<std::vector<std::uint32_t>> find_rings(const SearchSpace& space,
                                                   double rate,
                                                   std::uint32_t most,
                                                   std::uint64_t steps);

struct TreeFound {
  std::vector<std::optional<std::uint32_t>> parents;  ///< By vertex. Empty: there is none.
  std::uint32_t root = 0;
  std::uint32_t depth = 0;
  bool is_exact = true;

  bool is_none() const noexcept { return parents.empty(); }
};

/// Some tree no deeper than `deepest` whose every hop carries `rate` both ways at once.
TreeFound find_tree(const SearchSpace& space,
                    double rate,
                    std::uint32_t deepest,
                    std::uint64_t steps);

}  // namespace xylem::topology
