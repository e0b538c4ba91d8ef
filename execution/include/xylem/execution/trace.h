// SPDX-License-Identifier: Apache-2.0
//
// What the engine reads and makes, step by step. A test (engine_trace_test) builds the engine once
// more with XYLEM_ENGINE_TRACE, to compare its ways through a schedule; otherwise there is nothing
// here.
#pragma once

#include <cstdint>

namespace xylem::execution {

struct Run;
struct ProgramStep;

/// `along`: the result was made while the same bytes were sent.
enum class Traced : std::uint8_t { received, source, result, along };

#ifdef XYLEM_ENGINE_TRACE
/// The test's. `data`: a slice of the step's `operand`, wherever it lies. Messages that a transport
/// has put into their place by itself are not told; shared memory does not.
void trace(const Run& run,
           const ProgramStep& step,
           std::uint32_t slice,
           Traced what,
           std::uint32_t operand,
           const void* data);
/// The test's: whether exchanges go by rounds, as other programs do.
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
