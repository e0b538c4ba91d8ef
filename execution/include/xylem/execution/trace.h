// SPDX-License-Identifier: Apache-2.0
//
// Reports what the engine reads and produces, step by step. The test engine_trace_test compiles the
// engine a second time, with XYLEM_ENGINE_TRACE, and compares the ways in which the engine runs a
// schedule. Without XYLEM_ENGINE_TRACE, these functions do nothing.
#pragma once

#include <cstdint>

namespace xylem::execution {

struct Run;
struct ProgramStep;

/// What is reported. `along`: the result of a copy was written together with a send of the same
/// bytes.
enum class Traced : std::uint8_t { received, source, result, along };

#ifdef XYLEM_ENGINE_TRACE
/// Defined by the test. `data` is the address at which a slice of the step's operand number
/// `operand` is read or has been written. Not called for messages that the transport itself has
/// written to their place; shared memory never does that.
void trace(const Run& run,
           const ProgramStep& step,
           std::uint32_t slice,
           Traced what,
           std::uint32_t operand,
           const void* data);
/// Defined by the test: true if exchanges run in rounds, as other programs do.
bool are_all_by_rounds();
#else
inline void trace(const Run& /*run*/,
                  const ProgramStep& /*step*/,
                  std::uint32_t /*slice*/,
                  Traced /*what*/,
                  std::uint32_t /*operand*/,
                  const void* /*data*/) noexcept {}
inline constexpr bool are_all_by_rounds() noexcept { return false; }
#endif

}  // namespace xylem::execution
