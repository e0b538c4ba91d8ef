// SPDX-License-Identifier: Apache-2.0
//
// The links between the GPUs of a host as a flow network, for those who look for rings and bounds.
// Vertices are the GPUs and the places where ways part: switches, host bridges, NUMA nodes,
// packages. Every link is two edges, one in each direction, of the link's bandwidth each.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace xylem::topology {

/// Bandwidths that differ by less than this share are one: they are sums and quotients.
inline constexpr double kRounding = 1e-9;

/// Which links to take in.
enum class GraphLinks : std::uint8_t {
  fast,  ///< NVLink and XGMI alone.
  pcie,  ///< PCIe alone.
  all,   ///< Both.
};

class Graph {
 public:
  /// The capacity of an edge that nobody tells the bandwidth of: it limits nothing.
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  struct Edge {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double capacity = kUnlimited;  ///< GB/s.
    bool is_fast = false;          ///< NVLink or XGMI.
    bool has_unknown = false;      ///< Some link that it stands for has no known bandwidth.
  };

  /// The graph that joins `gpus` (indices, each once). They are its vertices 0, 1, … in this order.
  Graph(const Topology& topology, std::span<const std::uint32_t> gpus, GraphLinks links);

  std::uint32_t gpus() const noexcept { return gpus_; }
  std::uint32_t vertices() const noexcept { return static_cast<std::uint32_t>(out_.size()); }
  /// Edge 2k+1 is edge 2k in the other direction.
  const std::vector<Edge>& edges() const noexcept { return edges_; }
  /// The edges that leave a vertex.
  const std::vector<std::uint32_t>& out(std::uint32_t vertex) const { return out_[vertex]; }

  /// The edges that data from GPU `a` to GPU `b` crosses when no other GPU passes it on; empty if
  /// there is no such way. Requires a != b.
  std::span<const std::uint32_t> route(std::uint32_t a, std::uint32_t b) const {
    return routes_[std::size_t{a} * gpus_ + b];
  }
  /// How far apart they are, for choosing among routes of one bandwidth: 0 by NVLink, then growing
  /// along the ladder.
  std::uint32_t distance(std::uint32_t a, std::uint32_t b) const {
    return distances_[std::size_t{a} * gpus_ + b];
  }
  /// True if swapping the two changes nothing but their names.
  bool are_twins(std::uint32_t a, std::uint32_t b) const;

  /// Every GPU can reach every other.
  bool is_connected() const;

  /// The least that all edges together carry from one part of the GPUs to the rest; infinite if
  /// nothing limits it.
  double narrowest_cut() const;
  /// See BandwidthBounds; nothing where nothing limits it. Requires two GPUs.
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
