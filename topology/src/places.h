// SPDX-License-Identifier: Apache-2.0
//
// The places of a host as one tree, for code that draws or writes the host: the host, its packages,
// their NUMA nodes, and the PCIe trees attached to them.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::topology {

struct Place {
  /// Absent for the host itself, and for the child of the host that contains the devices of unknown
  /// place.
  std::optional<NodeRef> node;
  /// The places and devices inside this place. In a package, NUMA nodes come first, and then
  /// devices. The children of a bridge are ordered by address.
  std::vector<Place> children;
};

enum class Folding : std::uint8_t {
  nothing,
  /// A bridge with a single child is left out, and its child takes its place in the tree.
  single_bridges,
};

/// The tree of the host.
Place places_of(const Topology& topology, Folding folding = Folding::single_bridges);

}  // namespace xylem::topology
