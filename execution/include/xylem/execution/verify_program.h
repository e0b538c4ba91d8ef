// SPDX-License-Identifier: Apache-2.0
//
// verify_program: proves that compiled programs compute what their schedules describe. verify()
// proves the schedules. This function proves that the fusions, which are fields of the programs,
// change neither results nor progress. It proves these claims:
//
//   rings      A step that writes into a ring of slices waits until the previous slice in the same
//              place has been read by all steps that read the ring.
//   views      Each message that is read where it arrived is read by exactly one copy or reduction,
//              slice by slice. No other step uses the memory for which the view stands.
//   casts      All sends of a cast send the same bytes. A step that makes or copies these bytes
//              together with the sends uses the same memory, and a step that makes them is ordered
//              before or after each of the sends.
//   exchange   All messages of the program may be issued at once. Each has one slice, there is at
//              most one in each direction between two ranks, and sends do not wait for
//              computations. A received message that overwrites memory from which a send reads
//              cannot be sent before that send has arrived.
//   progress   Ranks never wait for each other in a circle, for any number of slices, with one slot
//              for each peer and channel. A viewed message keeps its slot until it has been read. A
//              send whose bytes stay with the sender ends when they have been read there.
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/program.h"

#include <span>

namespace xylem::execution {

/// OK, or `bad_schedule` with a message that names the claim, the rank and the step. `ranks[i]` is
/// rank i's program of the same call. The programs are those of schedules that verify() accepts.
Status verify_program(std::span<const Program* const> ranks);

}  // namespace xylem::execution
