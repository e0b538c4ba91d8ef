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
  /// What is inside the place. For a package, its NUMA nodes come first, and then devices; all are
  /// ordered by address.
  std::vector<Place> children;
};

enum class Folding : std::uint8_t {
  nothing,
  /// A bridge that leads to a single thing is left out, and this thing stands in its place.
  single_bridges,
};

/// The tree of the host.
Place places_of(const Topology& topology, Folding folding = Folding::single_bridges);

}  // namespace xylem::topology
