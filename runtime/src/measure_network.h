// SPDX-License-Identifier: Apache-2.0
//
// Measures the network between the hosts of a job, on all hosts at the same time.
#pragma once

#include "network_costs.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/cost_model.h"

#include <vector>

namespace xylem::runtime {

class Group;
struct Context;

/// Measures pairs of hosts in rounds (network_costs.h). The model must have the host of each rank.
/// Collective over `world`. Takes about 0.2 s on links of 1 Gbit/s. Returns at rank 0 the samples
/// of all hosts, and nothing at other ranks.
Result<std::vector<NetworkSample>> measure_network(Context& context,
                                                   Group& world,
                                                   const collectives::CostModel& model,
                                                   Deadline deadline);

}  // namespace xylem::runtime
