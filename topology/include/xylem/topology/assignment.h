// SPDX-License-Identifier: Apache-2.0
//
// Which NICs serve which GPU: each GPU by NICs that are as near as any, and NICs that several GPUs
// share by as equal a number of them as can be.
#pragma once

#include "xylem/topology/path.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology {

/// Whether a NIC may serve a GPU, or why not.
enum class NicUse : std::uint8_t {
  usable,
  no_fabric,  ///< Not one of Topology::fabric_nics().
  down,       ///< All its ports are down.
  slow,       ///< Below a quarter of the rate of the host's fastest: for management or storage.
};

/// The NICs of one GPU.
struct GpuNics {
  PathClass path_class = PathClass::unknown;  ///< Of all of them.
  std::vector<std::uint32_t> nics;            ///< Indices, the first to be preferred. Empty: none.
  std::string reason;                         ///< "PIX to mlx5_0 and mlx5_1, shared with GPU1"

  friend bool operator==(const GpuNics&, const GpuNics&) = default;
};

struct NicAssignment {
  std::vector<GpuNics> gpus;  ///< By GPU.
  std::vector<NicUse> uses;   ///< By NIC.
  /// NICs in the order of the GPUs that they serve first; without GPUs all usable ones.
  std::vector<std::uint32_t> rails;
  std::vector<std::uint32_t> loads;  ///< By NIC: how many GPUs prefer it.

  friend bool operator==(const NicAssignment&, const NicAssignment&) = default;
};

/// The rate of its fastest port; absent if none tells.
std::optional<GBps> rate_of(const Nic& nic);

/// Assigns usable fabric NICs to all GPUs of the host, whichever of them a process may see, so that
/// processes that see different ones agree. A GPU gets only NICs of its nearest (nearest_nics()
/// among the usable). Its first is chosen by an optimal semi-matching: no other choice makes the
/// sum of the squares of the loads less (Harvey, Ladner, Lovász, Tamir: Semi-matchings for
/// bipartite graphs and load balancing, 2003). NICs that are nobody's first then go, one after the
/// other, to that of the GPUs that they are nearest to which has the fewest. Ties go to the lower
/// PCI address, so the order of the source does not matter.
NicAssignment assign_nics(const Topology& topology);

}  // namespace xylem::topology
