// SPDX-License-Identifier: Apache-2.0
//
// Measures the constants of the cost model on the machines of this job, and the size from which the
// receiver should copy messages out of the sender's process. Ranks exchange a few messages in
// pairs, first within the hosts and then between them, and rank 0 times its reductions and copies.
// All ranks use the results of all, as rank 0 has them, so that they choose the same algorithms.
//
// Measuring has a budget of 0.35 s. In each pair one rank measures. This rank announces each
// message, and the end of the exchange, to the other rank. So both ranks stop after the same
// message, even if the budget is used up early. A constant that cannot be measured within the
// budget keeps its assumed value, and rank 0 logs that.
#pragma once

#include "config.h"
#include "tuning_file.h"
#include "wires/hosts.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/estimate.h"

namespace xylem::runtime {

class Group;
struct Context;

/// The tuning that is assumed before anything is measured, and with XYLEM_TUNING=off.
Tuning default_tuning(const Config& config, const Hosts& hosts);

/// Measures the constants, and returns `tuning` with the results. Collective over `world`, whose
/// job has this `context`; takes some milliseconds if links are fast. If XYLEM_TUNING names a file
/// that has an entry for this hardware, the ranks use this entry and exchange no messages.
/// Otherwise rank 0 adds an entry to the file, if everything could be measured.
Result<Tuning> measure(Context& context, Group& world, Tuning tuning, Deadline deadline);

}  // namespace xylem::runtime
