// SPDX-License-Identifier: Apache-2.0
//
// Compiles schedules over mapped memory into stream programs.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/schedule.h"
#include "xylem/execution/reduce_kernel.h"
#include "xylem/execution/stream_program.h"

#include <cstdint>
#include <memory>

namespace xylem::execution {

struct StreamProgramOptions {
  collectives::Counts counts{};
  std::uint64_t scratch_bytes = 0;   ///< Size of the scratch of each rank.
  std::uint32_t scratch_chunks = 0;  ///< The most scratch chunks of any rank.
  std::uint32_t divisor = 1;
  bool is_scaled = false;  ///< Copies from the input multiply by the factor of the call.
  /// Whether the ranks reach each other's buffers, so that steps may use them.
  bool is_direct = false;
  std::uint64_t call = 0;  ///< See StreamProgram::call.
  KernelId reduce = 0;     ///< For collectives that reduce.
  KernelId copy = 0;       ///< Copies elements.
  KernelId signal = 0;     ///< Sets flags.
  KernelId scale = 0;      ///< If `is_scaled`.
};

/// Fails with `unsupported` if a mesh cannot run the schedule: if it sends messages, uses the
/// callers' buffers of other ranks although `is_direct` is false, or breaks the rules of signals in
/// collectives/src/planners/phases.h.
Result<std::shared_ptr<const StreamProgram>> compile_for_stream(
    const collectives::Schedule& schedule, const StreamProgramOptions& options);

}  // namespace xylem::execution
