// SPDX-License-Identifier: Apache-2.0
//
// The memory that holds the data of a planned call. It determines what computes, and how fast data
// moves within a host.
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
  /// True if messages between hosts go through memory of the hosts, as Xylem sends GPU memory
  /// today.
  bool is_staged = false;
  collectives::ComputeCost compute;
  collectives::LinkCost local;  ///< Between ranks of a host.
  std::uint64_t slice_bytes = 0;
  /// Where the rates of `compute` and `local`, and the slices, come from.
  std::string compute_origin, local_origin, slice_origin;
};

/// The memory that the options ask for. If they ask for none, that of the GPUs if each rank has an
/// NVIDIA GPU of its own, and otherwise that of the hosts. `ranks` has the number of ranks of each
/// host. Fails if the options ask for memory of GPUs that the ranks do not have.
Result<PlannedMemory> memory_of(const PlanOptions& options,
                                std::span<const topology::Topology> hosts,
                                std::span<const std::uint32_t> ranks);

}  // namespace xylem::tools
