// SPDX-License-Identifier: Apache-2.0
//
// Measure: the constants of the cost model, from this job on these machines, and from which size on
// it is quicker to fetch messages from their senders' processes. Ranks exchange a few messages, two
// by two; rank 0 times its reductions and copies; all ranks get rank 0's answer, so they choose
// alike.
#pragma once

#include "config.h"
#include "tuning_file.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"

#include <vector>

namespace xylem::runtime {

class Group;
struct Context;

/// What is assumed before anything is measured, and with XYLEM_TUNING=off.
Tuning default_tuning(const Config& config, std::vector<std::uint32_t> hosts);

/// Collective over `world`, whose job's context is given; takes some milliseconds. With a tuning
/// file, rank 0's file is read, or written after measuring.
Result<Tuning> measure(Context& context, Group& world, Tuning tuning, Deadline deadline);

}  // namespace xylem::runtime
