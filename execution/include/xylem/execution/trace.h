// SPDX-License-Identifier: Apache-2.0
//
// Reports what the engine reads and produces, step by step. A test (engine_trace_test) builds the
// engine once more with XYLEM_ENGINE_TRACE, to compare the ways in which it runs a schedule.
// Otherwise these functions do nothing.
#pragma once

#include <cstdint>

namespace xylem::execution {

struct Run;
struct ProgramStep;

/// `along`: the result was produced while the same bytes were sent.
enum class Traced : std::uint8_t { received, source, result, along };

#ifdef XYLEM_ENGINE_TRACE
/// Defined by the test. `data` is a slice of the step's `operand`, wherever it lies. Not called for
/// messages that the transport itself has put into their place; shared memory never does that.
void trace(const Run& run,
           const ProgramStep& step,
           std::uint32_t slice,
           Traced what,
           std::uint32_t operand,
           const void* data);
/// Defined by the test: true if exchanges run by rounds, as other programs do.
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
