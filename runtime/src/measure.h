// SPDX-License-Identifier: Apache-2.0
//
// Measure: the constants of the cost model, from this job on these machines. Rank 0 and one partner
// of each reach exchange a few messages; rank 0 times its reductions and copies; all ranks get rank
// 0's answer, so they choose alike.
#pragma once

#include "config.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"

#include <vector>

namespace xylem::runtime {

class Group;

/// What is assumed before anything is measured, and with XYLEM_TUNING=off.
collectives::CostModel default_model(const Config& config, std::vector<std::uint32_t> hosts);

/// Collective over `world`; takes some milliseconds. With a tuning file, rank 0's file is read, or
/// written after measuring.
Result<collectives::CostModel> measure(Group& world,
                                       collectives::CostModel model,
                                       Deadline deadline);

}  // namespace xylem::runtime
