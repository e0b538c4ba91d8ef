// SPDX-License-Identifier: Apache-2.0
//
// estimate: predicts the time of schedules on a modelled fabric by running them in virtual time. A
// message of b bytes costs alpha + b / bandwidth on its link, and a reduce step gamma per byte
// (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, section 3). Links, and each rank's core, are
// shared.
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
/// (symmetry.h). Valid if all images behave like their representatives at every moment: the
/// symmetry maps hosts to hosts, and all blocks are of about the same size.
double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model);

/// When only its rank's core and ports can still delay a step, and when the step completes. A send
/// completes when all its bytes have arrived.
struct StepTime {
  double began_us = 0;
  double ended_us = 0;
};

/// Predicted times of all steps, by rank and step; a receive has the times of its send. Slices may
/// be larger than the model's, so that no step has more than 16 of them. So for long messages the
/// last step may end at another time than estimate_us() predicts. Precondition: verified schedules.
std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model);

}  // namespace xylem::collectives
