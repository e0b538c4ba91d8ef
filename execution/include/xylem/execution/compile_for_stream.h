// SPDX-License-Identifier: Apache-2.0
//
// Compiles a schedule whose ranks access each other's memory into a StreamProgram, which a mesh of
// devices runs (stream_program.h).
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
  std::uint64_t scratch_bytes = 0;   ///< Bytes of scratch that each rank has.
  std::uint32_t scratch_chunks = 0;  ///< The most scratch chunks of any rank.
  std::uint32_t divisor = 1;
  bool is_scaled = false;  ///< Copies from the input multiply it by StreamCall::factor.
  /// True if each device can access the inputs and outputs of all ranks. Then steps may use the
  /// inputs and outputs of other ranks.
  bool is_direct = false;
  std::uint64_t call = 0;  ///< See StreamProgram::call.
  KernelId reduce = 0;     ///< The kernel that reduces, if the collective does.
  KernelId copy = 0;       ///< The kernel that copies elements.
  KernelId signal = 0;     ///< The kernel that sets flags of peers.
  KernelId scale = 0;      ///< The kernel that multiplies, if `is_scaled`.
};

/// Compiles a schedule. Fails with `unsupported` if a mesh cannot run it: because it has sends or
/// receives, because it uses inputs or outputs of other ranks although `is_direct` is false, or
/// because it breaks the rules for signals in collectives/src/planners/phases.h.
Result<std::shared_ptr<const StreamProgram>> compile_for_stream(
    const collectives::Schedule& schedule, const StreamProgramOptions& options);

}  // namespace xylem::execution
