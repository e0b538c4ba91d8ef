// SPDX-License-Identifier: Apache-2.0
//
// The claims of verify_program.h that concern the program of one rank alone: rings, views, casts,
// and the form of an exchange.
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/program.h"

#include <cstddef>
#include <span>

namespace xylem::execution {

/// The operands that a step reads. Empty if the step moves no bytes.
inline std::span<const OperandLayout> operands_read_by(const Program& program,
                                                       const ProgramStep& step) {
  return step.bytes == 0 ? std::span<const OperandLayout>() : program.sources_of(step);
}

/// OK, or `bad_schedule` with a message that names the claim, the step and the rank. `rank` is the
/// rank that runs `program`.
Status verify_fusions(const Program& program, std::size_t rank);

}  // namespace xylem::execution
