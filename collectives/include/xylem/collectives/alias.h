// SPDX-License-Identifier: Apache-2.0
//
// Which chunks are the same memory when a call is made in place. A schedule must be right under
// every aliasing that its collective allows; verify() proves it under each.
#pragma once

#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <optional>

namespace xylem::collectives {

/// How the caller's output and input lie to each other.
///   all_reduce, reduce, broadcast: in place is the whole buffer, input chunk i = output chunk i.
///   all_gather, gather (at the root): input chunk 0 = output chunk `rank`.
///   reduce_scatter, scatter (at the root): output chunk 0 = input chunk `rank`.
///   all_to_all: never; the runtime stages the input of an in-place call.
/// A copy that an alias makes one of memory onto itself is void: the engine skips it.
enum class Aliasing : std::uint8_t { out_of_place, in_place };

/// True if an in-place call reaches the schedule as such.
bool allows_in_place(Collective collective) noexcept;

/// The input chunk that is the same memory as `output_chunk` at `rank` in an in-place call, if
/// there is one.
std::optional<std::uint32_t> aliased_input(const Shape& shape,
                                           std::uint32_t rank,
                                           std::uint32_t output_chunk) noexcept;

}  // namespace xylem::collectives
