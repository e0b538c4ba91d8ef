// SPDX-License-Identifier: Apache-2.0
//
// Assignment of NICs to GPUs. Each GPU gets some of its nearest NICs. If several GPUs share NICs,
// the numbers of GPUs that each NIC serves are as equal as possible.
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
  /// Its rate is below a quarter of that of the fastest NIC of the host: a NIC for management or
  /// storage.
  slow,
};

/// The NICs of one GPU.
struct GpuNics {
  PathClass path_class = PathClass::unknown;  ///< The class of the path to each of the NICs.
  std::vector<std::uint32_t> nics;            ///< Indices, the preferred one first. Empty: no NIC.
  std::string reason;                         ///< "PIX to mlx5_0 and mlx5_1, shared with GPU1"

  friend bool operator==(const GpuNics&, const GpuNics&) = default;
};

struct NicAssignment {
  std::vector<GpuNics> gpus;  ///< gpus[g] is about GPU g.
  std::vector<NicUse> uses;   ///< uses[n] is about NIC n.
  /// The NICs in the order of the GPUs that prefer them. After these come the NICs that GPUs use
  /// second, and so on. Without GPUs, all usable NICs.
  std::vector<std::uint32_t> rails;
  std::vector<std::uint32_t> loads;  ///< loads[n] is the number of GPUs that prefer NIC n.

  friend bool operator==(const NicAssignment&, const NicAssignment&) = default;
};

/// The rate of the NIC's fastest port; absent if no port reports one.
std::optional<GBps> rate_of(const Nic& nic);

/// Assigns usable fabric NICs to all GPUs of the host, including GPUs that this process cannot see,
/// so that processes that see different GPUs agree. A GPU only gets NICs that are nearest to it
/// (nearest_nics() among the usable NICs). Its preferred NIC follows from an optimal semi-matching:
/// no other choice gives a smaller sum of the squares of the loads (Harvey, Ladner, Lovász, Tamir:
/// Semi-matchings for bipartite graphs and load balancing, 2003). Each NIC that no GPU prefers is
/// then added to the GPU with the fewest NICs, of those to which it is nearest. On a tie the lower
/// PCI address decides, so the order of devices in the source does not matter.
NicAssignment assign_nics(const Topology& topology);

}  // namespace xylem::topology
