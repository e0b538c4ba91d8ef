// SPDX-License-Identifier: Apache-2.0
//
// The last step of every reader.
#pragma once

#include "xylem/topology/topology.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace xylem::topology {

/// Makes a Topology of the Machine that a reader has filled. Errors name the source.
inline Result<Topology> create_from(std::string_view source, Machine machine) {
  auto topology = Topology::create(std::move(machine));
  if (topology) return topology;
  return failure(topology.code(), fmt::format("{}: {}", source, topology.status().message()));
}

}  // namespace xylem::topology
