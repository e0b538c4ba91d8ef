// SPDX-License-Identifier: Apache-2.0
//
// Text of one step, as in a printed schedule; also what errors call a step by.
#pragma once

#include "xylem/collectives/schedule.h"

#include <string>

namespace xylem::collectives {

/// "recv ch0 peer 1 scratch[0]". Precondition: the step's indices are in bounds.
std::string step_text(const Schedule& schedule, const Step& step);
/// "output[2]", "output[2..4]", "output[2]@3" for another rank's.
std::string operand_text(const Schedule& schedule, const Operand& operand, std::uint32_t count);

}  // namespace xylem::collectives
