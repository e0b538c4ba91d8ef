// SPDX-License-Identifier: Apache-2.0
//
// The places of a host as one tree, for code that draws it: the host, its packages, their NUMA
// nodes, and the PCIe trees attached to them.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::topology {

struct Place {
  /// Absent for the host itself, and for the place below it that holds devices of unknown place.
  std::optional<NodeRef> node;
  /// For a package first its NUMA nodes, then devices; by address.
  std::vector<Place> children;
};

enum class Folding : std::uint8_t {
  nothing,
  single_bridges,  ///< A bridge that leads to one thing alone is left out: that stands in its
                   ///< place.
};

/// The tree of the host.
Place places_of(const Topology& topology, Folding folding = Folding::single_bridges);

}  // namespace xylem::topology
