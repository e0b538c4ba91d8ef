// SPDX-License-Identifier: Apache-2.0
//
// Assignment of NICs to GPUs. Each GPU is assigned some of its nearest NICs. If several GPUs share
// NICs, the GPUs are distributed over these NICs as evenly as possible.
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
  no_fabric,  ///< The NIC is not in Topology::fabric_nics().
  down,       ///< All ports of the NIC are down.
  /// The rate of the NIC is below a quarter of the rate of the host's fastest NIC, so it is
  /// probably for management or storage.
  slow,
};

/// The NICs of one GPU.
struct GpuNics {
  PathClass path_class = PathClass::unknown;  ///< The class of the path to each of the NICs.
  std::vector<std::uint32_t> nics;            ///< Indices, the preferred NIC first; may be empty.
  std::string reason;                         ///< "PIX to mlx5_0 and mlx5_1, shared with GPU1"

  friend bool operator==(const GpuNics&, const GpuNics&) = default;
};

struct NicAssignment {
  std::vector<GpuNics> gpus;  ///< gpus[g] has the NICs of GPU g.
  std::vector<NicUse> uses;   ///< uses[n] says whether NIC n may serve GPUs.
  /// rails[k] is the NIC of rail k. First come the preferred NICs, in the order of the GPUs that
  /// prefer them. Then come the NICs that are second in GpuNics::nics, and so on. On a host without
  /// GPUs, `rails` contains all usable NICs.
  std::vector<std::uint32_t> rails;
  std::vector<std::uint32_t> loads;  ///< loads[n] is the number of GPUs that prefer NIC n.

  friend bool operator==(const NicAssignment&, const NicAssignment&) = default;
};

/// The rate of the NIC's fastest port; absent if no port reports its rate.
std::optional<GBps> rate_of(const Nic& nic);

/// Assigns usable fabric NICs to all GPUs of the host, including GPUs that this process cannot see,
/// so that processes that see different GPUs compute the same assignment. A GPU is assigned only
/// NICs that are nearest to it (nearest_nics() among the usable NICs). The preferred NICs follow
/// from an optimal semi-matching: no other choice gives a smaller sum of the squares of the loads
/// (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing, 2003).
/// Each NIC that no GPU prefers is then added to one of the GPUs to which it is nearest: the GPU
/// with the fewest NICs. On a tie the lower PCI address decides, so the order of devices in the
/// source does not matter.
NicAssignment assign_nics(const Topology& topology);

}  // namespace xylem::topology
