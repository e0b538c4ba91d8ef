// SPDX-License-Identifier: Apache-2.0
//
// Measures the constants of the cost model on the machines of this job, and the size from which the
// receiver should copy messages out of the sender's process. Ranks exchange a few messages in
// pairs, and rank 0 times its reductions and copies. All ranks use the results of rank 0, so that
// they choose the same algorithms.
//
// Measuring has a budget of 0.3 s. In each pair one rank measures. It announces each message and
// the end to the other rank, so both stop at the same time if the link is slow. A constant that
// cannot be measured within the budget keeps its assumed value, and rank 0 logs that.
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

/// The tuning that is assumed before anything is measured, and with XYLEM_TUNING=off.
Tuning default_tuning(const Config& config, std::vector<std::uint32_t> hosts);

/// Collective over `world`, whose job has this `context`; takes some milliseconds over quick links.
/// With a tuning file, rank 0 reads the file, or writes it after measuring everything.
Result<Tuning> measure(Context& context, Group& world, Tuning tuning, Deadline deadline);

}  // namespace xylem::runtime
