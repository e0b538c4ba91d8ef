// SPDX-License-Identifier: Apache-2.0
//
// Aliasing: which chunks share memory when a call is made in place. A schedule must be correct
// under every aliasing that its collective allows, and verify() proves this for each aliasing.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <optional>

namespace xylem::collectives {

/// How the caller's output and input share memory in an in-place call:
///   all_reduce, reduce, broadcast: the whole buffers coincide: input chunk i = output chunk i.
///   all_gather, gather (at the root): input chunk 0 = output chunk `rank`.
///   reduce_scatter, scatter (at the root): output chunk 0 = input chunk `rank`.
///   all_to_all: never; the runtime stages the input of an in-place call.
/// If the source and the target of a copy are then the same memory, the engine skips the copy.
enum class Aliasing : std::uint8_t { out_of_place, in_place };

/// True if schedules of this collective can run with input and output in place.
bool allows_in_place(Collective collective) noexcept;

/// The input chunk that shares its memory with `output_chunk` in an in-place call at `rank`, if
/// there is one.
std::optional<std::uint32_t> aliased_input(const Shape& shape,
                                           std::uint32_t rank,
                                           std::uint32_t output_chunk) noexcept;

}  // namespace xylem::collectives
