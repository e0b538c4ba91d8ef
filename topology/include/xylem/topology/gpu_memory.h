// SPDX-License-Identifier: Apache-2.0
//
// How fast GPUs reach memory: their own, and the host's.
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>

namespace xylem::topology {

/// A bandwidth, and a text on its origin, such as "data sheet of H100 SXM".
struct KnownRate {
  GBps bandwidth;
  std::string origin;

  friend bool operator==(const KnownRate&, const KnownRate&) = default;
};

/// The bandwidth of a GPU's own memory, which reads and writes share. It comes from the first of
/// these that has it: the driver, the data sheet of the model, the least of the architecture, an
/// assumption. `origin` says which of them.
KnownRate memory_rate(const Gpu& gpu);

/// The share of a GPU in the PCIe links between it and the processor, in each direction, if all
/// GPUs below the same bridges use them at once. Nothing if the rate of no link is known.
std::optional<GBps> host_rate(const Topology& topology, std::uint32_t gpu);

}  // namespace xylem::topology
