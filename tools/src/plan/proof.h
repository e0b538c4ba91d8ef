// SPDX-License-Identifier: Apache-2.0
//
// Proof: whether the plan of all ranks is right, however they interleave.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/choose.h"

#include <string>

namespace xylem::tools {

struct Proof {
  Status outcome;
  std::string how;  ///< "8 ranks, 112 steps, all at once"; empty if there is no proof.
};

/// Proves the plan of all ranks: all at once or, if their schedules are too large for this, by a
/// symmetry of the plan. If neither is possible, the result says that there is no proof.
Proof prove(const collectives::Choice& choice);

}  // namespace xylem::tools
