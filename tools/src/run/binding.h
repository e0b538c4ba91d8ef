// SPDX-License-Identifier: Apache-2.0
//
// Binding: the CPUs on which each rank of a host may run.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/cpu_set.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <vector>

namespace xylem::tools {

/// Each rank's share of the `allowed` CPUs near its place (topology/placement.h). If a node has
/// fewer CPUs than ranks, its ranks share all of them. Fails with `unsupported` if the machine does
/// not report its CPUs, or if none near a rank's place is allowed.
Result<std::vector<topology::CpuSet>> bind_ranks(const topology::Topology& topology,
                                                 const topology::CpuSet& allowed,
                                                 std::uint32_t ranks);
/// Like the function above, for this machine and the CPUs that this process may use. Starts no
/// thread.
Result<std::vector<topology::CpuSet>> bind_ranks(std::uint32_t ranks);

}  // namespace xylem::tools
