// SPDX-License-Identifier: Apache-2.0
//
// Where things are, as one tree for those who draw it: the host, its packages, their NUMA nodes,
// and the PCIe trees that hang from them.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::topology {

struct Place {
  /// Nothing for the host itself and, below it, for where the devices are whose place is unknown.
  std::optional<NodeRef> node;
  /// Of a package its NUMA nodes first, then devices; by address.
  std::vector<Place> children;
};

enum class Folding : std::uint8_t {
  nothing,
  single_bridges,  ///< A bridge that leads to one thing alone is left out: that stands in its
                   ///< place.
};

/// The host.
Place places_of(const Topology& topology, Folding folding = Folding::single_bridges);

}  // namespace xylem::topology
