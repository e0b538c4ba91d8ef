// SPDX-License-Identifier: Apache-2.0
//
// estimate: predicts the time of schedules on a modelled fabric by running them in virtual time. A
// message of b bytes costs alpha + b / bandwidth on its link, and a reduction costs gamma for each
// byte (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, section 3). Concurrent messages share the
// links, and all steps of a rank share its core.
#pragma once

#include "xylem/collectives/cost_model.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>
#include <vector>

namespace xylem::collectives {

/// Predicted time in microseconds until the last rank is done. `ranks[i]` is the schedule of rank
/// i. The schedules must be verified; otherwise the result is meaningless. Equal inputs give equal
/// results on every rank.
double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model);
/// The predicted time of a plan, computed from the schedules of its representatives only
/// (symmetry.h). The result is valid only if all ranks behave like their representatives at every
/// moment. This requires that the symmetry maps hosts to hosts, and that all blocks have about the
/// same size.
double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model);

/// The predicted times of a step. `began_us`: when all steps for which its first slice waits have
/// completed; the slice may still wait for the core or the ports of its rank. `ended_us`: when the
/// step completes; for a send, when all its bytes have arrived.
struct StepTime {
  double began_us = 0;
  double ended_us = 0;
};

/// Predicted times of all steps, by rank and step; a receive has the times of its send. For long
/// messages, the simulated slices are larger than CostModel::slice_bytes, so that no step has more
/// than 16 slices. Then the last step may end at another time than estimate_us() predicts.
/// Precondition: verified schedules.
std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model);

}  // namespace xylem::collectives
