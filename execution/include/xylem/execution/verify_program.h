// SPDX-License-Identifier: Apache-2.0
//
// verify_program: proves that what the engine makes of a schedule still does what the schedule
// says. verify() has proven the schedules; here it is shown that the fusions, which are fields of
// the programs, change neither results nor progress.
//
//   rings      Whatever writes a ring of slices waits until the slice that was in its place has
//              been read by all steps that read the ring.
//   views      A message is read where it arrived by exactly one computed step, slice by slice. No
//              other step reads or writes the memory that the view stands for.
//   casts      All sends of a cast send the same bytes. Whatever makes these bytes, or copies them
//              along, works on the same memory, and is ordered before or after each of the sends.
//   exchange   All messages of the program may go at once: each has one slice, at most one goes
//              each way between two ranks, sends wait for nothing that is computed, and what is
//              received in place of something sent cannot have been sent before that has arrived.
//   progress   No ranks wait for each other in a circle, for any number of slices, with one slot
//              for each (peer, channel): where a view keeps its slot until it has been read, and a
//              send that stays with its sender ends only then.
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/program.h"

#include <span>

namespace xylem::execution {

/// OK, or `bad_schedule` with a message that names the claim, the rank and the step. `ranks[i]` is
/// rank i's program of the same call. The programs are those of schedules that verify() accepts.
Status verify_program(std::span<const Program* const> ranks);

}  // namespace xylem::execution
