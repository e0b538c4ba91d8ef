// SPDX-License-Identifier: Apache-2.0
//
// The text of one step, used in printed schedules and in errors.
#pragma once

#include "xylem/collectives/schedule.h"

#include <string>

namespace xylem::collectives {

/// "recv ch0 peer 1 scratch[0]". Precondition: the step's indices are in bounds.
std::string step_text(const Schedule& schedule, const Step& step);
/// "output[2]", "output[2..4]", or "output[2]@3" for a chunk of another rank.
std::string operand_text(const Schedule& schedule, const Operand& operand, std::uint32_t count);

}  // namespace xylem::collectives
