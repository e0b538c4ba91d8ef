// SPDX-License-Identifier: Apache-2.0
//
// How fast GPUs access memory: their own, and that of the host.
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
/// these sources that contains it: the driver, the data sheet of the model, the slowest memory of
/// the architecture, an assumption. `origin` names the source.
KnownRate memory_rate(const Gpu& gpu);

/// The bandwidth between a GPU and the processor over PCIe, in each direction, if all GPUs that
/// share PCIe links with this GPU use these links at the same time. Nothing if the bandwidth of no
/// link is known.
std::optional<GBps> host_rate(const Topology& topology, std::uint32_t gpu);

}  // namespace xylem::topology
