// SPDX-License-Identifier: Apache-2.0
//
// The job for which a plan is made: its hosts, the placement of its ranks, and the costs of
// messages.
#pragma once

#include "command_line.h"
#include "plan/memory.h"
#include "xylem/collectives/estimate.h"
#include "xylem/topology/cluster.h"

#include <cstdint>
#include <string>
#include <vector>

namespace xylem::tools {

struct PlannedJob {
  topology::Cluster cluster;
  std::vector<std::uint32_t> ranks_of_host;
  collectives::CostModel model;  ///< Includes the host of each rank.
  PlannedMemory memory;          ///< The costs of the model within a host are from here.
  std::string remote_origin;     ///< Where the cost between hosts comes from.

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(cluster.hosts.size()); }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(model.host.size()); }
};

/// Makes the job from the given machines and flags. The message of an error is one line.
Result<PlannedJob> job_of(const PlanOptions& options);

/// Sets the memory that holds the data of the call, and the costs of the model that depend on it.
void use_memory(PlannedJob& job, PlannedMemory memory);

/// "host 0: GPU3, mlx5_3, NUMA node 0, CPUs 24-31"
std::string place_of(const PlannedJob& job, std::uint32_t rank);

/// One line for each rail: "50 GB/s: mlx5_0", or "50 GB/s: mlx5_0 on 3 hosts, mlx5_2 on 1 host".
std::vector<std::string> rails_of(const PlannedJob& job);

}  // namespace xylem::tools
