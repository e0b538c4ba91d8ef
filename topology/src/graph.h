// SPDX-License-Identifier: Apache-2.0
//
// The links between the GPUs of a host as a flow network, used to find rings and bounds. Vertices
// are the GPUs and the branching points between them: switches, host bridges, NUMA nodes, packages.
// Every link becomes two edges, one in each direction, each with the bandwidth of the link.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace xylem::topology {

/// Bandwidths whose relative difference is smaller than this count as equal, since they are results
/// of rounded sums and quotients.
inline constexpr double kRounding = 1e-9;

/// Which links to include.
enum class GraphLinks : std::uint8_t {
  fast,  ///< NVLink and XGMI alone.
  pcie,  ///< PCIe alone.
  all,   ///< Both.
};

class Graph {
 public:
  /// The capacity of an edge of unknown bandwidth, which limits no flow.
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  struct Edge {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double capacity = kUnlimited;  ///< GB/s.
    bool is_fast = false;          ///< True for NVLink and XGMI.
    bool has_unknown = false;      ///< True if it represents a link of unknown bandwidth.
  };

  /// The graph that connects `gpus` (distinct indices), which become its vertices 0, 1, … in this
  /// order.
  Graph(const Topology& topology, std::span<const std::uint32_t> gpus, GraphLinks links);

  std::uint32_t gpus() const noexcept { return gpus_; }
  std::uint32_t vertices() const noexcept { return static_cast<std::uint32_t>(out_.size()); }
  /// Edge 2k+1 is the reverse of edge 2k.
  const std::vector<Edge>& edges() const noexcept { return edges_; }
  /// The edges that leave a vertex.
  const std::vector<std::uint32_t>& out(std::uint32_t vertex) const { return out_[vertex]; }

  /// The edges on the route from GPU `a` to GPU `b`, which passes through no other GPU; empty if
  /// there is no route. Requires a != b.
  std::span<const std::uint32_t> route(std::uint32_t a, std::uint32_t b) const {
    return routes_[std::size_t{a} * gpus_ + b];
  }
  /// The distance of two GPUs, to choose among rings of the same bandwidth: 0 over NVLink, and
  /// larger for each further path class.
  std::uint32_t distance(std::uint32_t a, std::uint32_t b) const {
    return distances_[std::size_t{a} * gpus_ + b];
  }
  /// True if exchanging the two GPUs changes nothing but their names.
  bool are_twins(std::uint32_t a, std::uint32_t b) const;

  /// Whether every GPU can reach every other.
  bool is_connected() const;

  /// The minimum, over all ways to split the GPUs into two parts, of the bandwidth from one part to
  /// the other; infinite if nothing limits it.
  double narrowest_cut() const;
  /// The bounds of BandwidthBounds in GB/s; nothing if there is no limit. Requires at least two
  /// GPUs.
  std::optional<double> all_gather_bound() const;
  std::optional<double> all_reduce_bound() const;

 private:
  class Builder;

  void find_routes(std::uint32_t from);

  std::uint32_t gpus_ = 0;
  std::vector<Edge> edges_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::vector<std::uint32_t>> routes_;
  std::vector<std::uint32_t> distances_;
};

}  // namespace xylem::topology
