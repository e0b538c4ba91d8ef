// SPDX-License-Identifier: Apache-2.0
//
// verify: proves, for all ranks together and for every interleaving, that schedules do what their
// collective promises.
//
//   1. order          any two accesses to one chunk of which one writes are ordered by dependencies
//                     or messages, and others touch a rank's memory only while it takes part;
//   2. aliasing       so under each aliasing that the collective allows, with the same values, in
//   any
//                     mixture of ranks that are in place and that are not;
//   3. contributions  every output chunk ends with exactly the right contributions, each once; a
//                     reduction is finished exactly once, and all ranks of an all_reduce compute
//                     the same expression, so the same bits; no rank leaves a barrier before all
//                     entered;
//   4. progress       no deadlock with one slot per (peer, channel) and with more, however the data
//                     is sliced;
//   5. form           everything is in bounds, and the two ends of each message agree.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/plan_of.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/symmetry.h"

#include <span>

namespace xylem::collectives {

/// OK, or `bad_schedule` with a message that names the claim, the rank, the step and the chunk.
/// `ranks[i]` is rank i's.
Status verify(std::span<const Schedule> ranks);

/// The same claims for all ranks of a plan whose schedules together would not fit into memory: they
/// are made one by one by `plan`, on the threads of `run` (by itself the caller's alone). First
/// each rank's schedule is shown to be the image of its representative's (claim "symmetry"); then
/// what the representatives do is proven, and holds for all images. Plans over others' memory, with
/// a root, and barriers are refused, and so are plans whose order or progress shows only in the
/// ranks' differences; those need all schedules at once.
Status verify(const Symmetry& symmetry, const PlanOf& plan, const RunParts& run = nullptr);

}  // namespace xylem::collectives
