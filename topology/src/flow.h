// SPDX-License-Identifier: Apache-2.0
//
// Maximum flow by Dinic's algorithm: the highest rate at which data can flow from one vertex to
// another, and the cut that limits the rate.
#pragma once

#include <cstdint>
#include <vector>

namespace xylem::topology {

class FlowNetwork {
 public:
  explicit FlowNetwork(std::uint32_t vertices) : out_(vertices) {}

  /// Adds a directed edge and returns its number. `capacity` may be infinite.
  std::uint32_t add(std::uint32_t from, std::uint32_t to, double capacity);
  void set_capacity(std::uint32_t edge, double capacity) { arcs_[2 * edge].capacity = capacity; }

  /// The maximum flow from `source` to `sink`; infinite if some path has no limit.
  double max_flow(std::uint32_t source, std::uint32_t sink);

  /// After max_flow() returned a finite value: whether `vertex` is on the source's side of the
  /// minimum cut.
  bool is_on_source_side(std::uint32_t vertex) const { return level_[vertex] >= 0; }

 private:
  struct Arc {
    std::uint32_t to = 0;
    double capacity = 0;
    double left = 0;
  };

  bool find_levels(std::uint32_t source, std::uint32_t sink);
  double push(std::uint32_t at, std::uint32_t sink, double most);

  double nothing_ = 0;     ///< Remaining capacities below this value are rounding errors.
  std::vector<Arc> arcs_;  ///< Arc 2k+1 is the reverse of arc 2k.
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::int32_t> level_;
  std::vector<std::size_t> next_;
};

}  // namespace xylem::topology
