// SPDX-License-Identifier: Apache-2.0
//
// How the bytes of slices move: as messages, and as work of a Compute.
#pragma once

#include "xylem/execution/engine_listener.h"
#include "xylem/execution/message_pool.h"

#include <cstddef>
#include <cstdint>

namespace xylem::execution {

/// Consecutive slices of a step.
struct Slices {
  std::uint32_t first = 0, count = 1;

  std::uint32_t last() const noexcept { return first + count - 1; }
};

/// The tag of the message that moves a slice.
transport::Tag tag_of(const Execution& execution, const ProgramStep& step, std::uint32_t slice);
/// The memory from which a step sends a slice.
transport::ConstRegion region_of(const Run& run,
                                 const ProgramStep& step,
                                 std::uint32_t slice) noexcept;
/// Posts the message that moves a slice. Returns the message if it has completed at once, and
/// otherwise null.
Message* post(MessagePool& messages, Execution& execution, StepId id, std::uint32_t slice);

/// Describes the work of a copy or reduction for slices that are adjacent in memory. The result
/// refers to Run::sources, so it is valid until the next call of work_of() for the same run.
ComputeWork work_of(Run& run, const ProgramStep& step, const Slices& slices, std::byte* target);
/// Copies a slice of a receive from `data` to its own place.
void copy_to_target(const Run& run,
                    const ProgramStep& step,
                    std::uint32_t slice,
                    const std::byte* data);
/// Makes host scratch of an execution accessible to its device, before the device first uses it. If
/// that fails, reports it to the listener, and the execution issues nothing more. False then.
bool pin(EngineListener& listener, Execution& execution, ScratchBuffer& scratch);
/// Enqueues a copy of bytes on a device.
Ticket enqueue_bytes(
    Compute& device, std::uint32_t queue, void* target, const void* source, std::uint64_t bytes);
/// Enqueues one copy of `slices` slices of a receive to their own places. The slices have arrived
/// in adjacent memory, which begins at the view `first`. Run::scratch must be pinned.
Ticket enqueue_to_target(const Run& run, const HeldView& first, std::uint32_t slices = 1);

}  // namespace xylem::execution
