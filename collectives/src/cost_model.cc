// SPDX-License-Identifier: Apache-2.0
#include "xylem/collectives/cost_model.h"

namespace xylem::collectives {

CostModel assumed_costs() {
  // Fitted to measurements: with this value, two_shot is predicted to overtake recursive_doubling
  // (2 ranks) and one_shot (4 ranks) at the same sizes as in the measurements ("The choice" in
  // bench/results/2026-11-29-history.md).
  constexpr double kStepUs = 0.8;
  CostModel model;
  model.step_us = kStepUs;
  model.local = {1.0, 5.0};
  model.remote = {15.0, 1.2};
  model.compute.reduce_GBps = 8.0;
  model.compute.copy_GBps = 8.0;
  return model;
}

}  // namespace xylem::collectives
