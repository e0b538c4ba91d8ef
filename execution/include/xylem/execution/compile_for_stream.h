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
#include <optional>
#include <span>

namespace xylem::execution {

struct StreamProgramOptions {
  collectives::Counts counts{};
  /// StreamProgram::slice_bytes. The same on all ranks, as are the sizes of the blocks that two
  /// ranks exchange.
  std::uint64_t slice_bytes = kUnlimited;
  std::uint32_t divisor = 1;
  bool stages_input = false;           ///< See StreamProgram::stages_input.
  std::uint64_t call = 0;              ///< See StreamProgram::call.
  KernelId reduce = 0;                 ///< The kernel that reduces, if the collective does.
  KernelId copy = 0;                   ///< The kernel that copies elements.
  std::optional<KernelId> scale = {};  ///< See StreamProgram::scale.

  static constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;
};

/// Compiles the schedule of `rank`; schedules[r] is the schedule of rank r. Fails with
/// `unsupported` if a mesh cannot run it: because it has sends or receives, because it uses
/// scratch, because a rank uses several chunks of a buffer of another rank, or because it breaks
/// the rules for signals in collectives/src/planners/phases.h.
Result<std::shared_ptr<const StreamProgram>> compile_for_stream(
    std::span<const collectives::Schedule> schedules,
    std::uint32_t rank,
    const StreamProgramOptions& options);

}  // namespace xylem::execution
