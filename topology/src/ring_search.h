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

struct RingFound {
  std::vector<std::uint32_t> order;  ///< Vertices, from 0. Empty: there is none.
  bool is_exact = true;              ///< The search came to its end.
};

/// The ring of the least distance among those whose every hop carries `rate` GB/s.
RingFound find_ring(const Graph& graph, double rate, std::uint64_t steps);

/// As many rings that run at once, each of `rate`, as are found, up to `most`.
std::vector<std::vector<std::uint32_t>> find_rings(const Graph& graph,
                                                   double rate,
                                                   std::uint32_t most,
                                                   std::uint64_t steps);

struct TreeFound {
  std::vector<std::optional<std::uint32_t>> parents;  ///< By vertex. Empty: there is none.
  std::uint32_t root = 0;
  std::uint32_t depth = 0;
  bool is_exact = true;
};

/// The flattest tree whose every hop carries `rate` both ways at once.
TreeFound find_tree(const Graph& graph, double rate, std::uint64_t steps);

/// For each GPU the first that it could swap places with unseen, itself if there is none before it.
std::vector<std::uint32_t> twins(const Graph& graph);

}  // namespace xylem::topology
