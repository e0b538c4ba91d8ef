// SPDX-License-Identifier: Apache-2.0
//
// estimate: the time schedules take on a modelled fabric, by running them in virtual time. A
// message of b bytes costs alpha + b / bandwidth on the link it takes, a reduce step gamma per byte
// (Hockney 1994; Thakur, Rabenseifner, Gropp 2005, section 3); links and each rank's core are
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

/// Predicted microseconds until the last rank is done. `ranks[i]` is rank i's schedule; verified,
/// or the answer is meaningless. Same input, same answer, on every rank.
double estimate_us(std::span<const Schedule> ranks, const Counts& counts, const CostModel& model);
/// The same from the representatives alone, where images run in step with them: the symmetry takes
/// hosts to hosts, and all blocks are of about the same size.
double estimate_us(std::span<const Schedule> representatives,
                   const Symmetry& symmetry,
                   const Counts& counts,
                   const CostModel& model);

/// When a step begins to wait for nothing but its rank's core and ports, and when it is done; of a
/// send, when all has arrived.
struct StepTime {
  double began_us = 0;
  double ended_us = 0;
};

/// Predicted times of all steps of all ranks, by rank and step; a receive has those of its send.
/// The model's slices are made larger where that keeps steps to 16 of them, so the last step may
/// end otherwise than estimate_us() says of long messages. Precondition: verified schedules.
std::vector<std::vector<StepTime>> predict_steps(std::span<const Schedule> ranks,
                                                 const Counts& counts,
                                                 const CostModel& model);

}  // namespace xylem::collectives
