// SPDX-License-Identifier: Apache-2.0
//
// The memory that holds the data of a planned call. It determines whether CPUs or GPUs reduce and
// copy, and how fast data moves within a host.
#pragma once

#include "command_line.h"
#include "xylem/collectives/cost_model.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <span>
#include <string>

namespace xylem::tools {

/// What `xylem plan` assumes about the memory of a call.
struct PlannedMemory {
  bool is_on_gpus = false;
  /// True if messages between hosts are copied through memory of the hosts. This is how Xylem sends
  /// GPU memory.
  bool is_staged = false;
  collectives::ComputeCost compute;
  collectives::LinkCost local;  ///< Between ranks of a host.
  std::uint64_t slice_bytes = 0;
  /// Where the rates of `compute` and `local`, and the slices, come from.
  std::string compute_origin, local_origin, slice_origin;
};

/// The memory that the options select. If they select none: memory of the GPUs if each rank has an
/// NVIDIA GPU of its own, otherwise memory of the hosts. `ranks[i]` is the number of ranks of host
/// i. Fails if the options select memory of GPUs and some rank has no such GPU.
Result<PlannedMemory> memory_of(const PlanOptions& options,
                                std::span<const topology::Topology> hosts,
                                std::span<const std::uint32_t> ranks);

}  // namespace xylem::tools
