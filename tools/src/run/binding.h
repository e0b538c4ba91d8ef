// SPDX-License-Identifier: Apache-2.0
//
// Binding: which CPUs each rank of a host may run on.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/cpu_set.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <vector>

namespace xylem::tools {

/// Each rank's share of the CPUs near its place (topology/placement.h), of those that are
/// `allowed`. Ranks share all CPUs of a node that has fewer than ranks. `unsupported` where the
/// machine does not tell its CPUs, or none near a rank's place is allowed.
Result<std::vector<topology::CpuSet>> bind_ranks(const topology::Topology& topology,
                                                 const topology::CpuSet& allowed,
                                                 std::uint32_t ranks);
/// Of this machine, and of the CPUs that this process may use. Starts no thread.
Result<std::vector<topology::CpuSet>> bind_ranks(std::uint32_t ranks);

}  // namespace xylem::tools
