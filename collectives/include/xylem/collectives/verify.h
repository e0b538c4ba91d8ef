// SPDX-License-Identifier: Apache-2.0
//
// verify: proves for all ranks together, and for every interleaving, that schedules do what their
// collective promises.
//
//   1. order          two accesses to the same chunk, one of them a write, are always ordered by
//                     dependencies or messages; other ranks access a rank's memory only between
//                     the first and the last step of that rank;
//   2. aliasing       claim 1 also holds under each aliasing that the collective allows, and every
//                     step sees the same values, with any mixture of ranks in and out of place;
//   3. contributions  every output chunk ends with exactly the right contributions, each once; a
//                     reduction is finished exactly once; all ranks of an all_reduce compute the
//                     same expression, so the same bits; no rank leaves a barrier before all ranks
//                     have entered it;
//   4. progress       there is no deadlock, with one slot per (peer, channel) or more, however the
//                     data is sliced;
//   5. form           everything is in bounds, and the two ends of each message agree.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/schedule_maker.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>

namespace xylem::collectives {

/// OK, or `bad_schedule` with a message that names the claim, the rank, the step and the chunk.
/// `ranks[i]` is the schedule of rank i.
Status verify(std::span<const Schedule> ranks);

/// The number of chunks, of the buffers and steps of one rank, that verify() holds in memory.
std::uint64_t proof_chunks(const Schedule& schedule);
/// The largest sum of proof_chunks() over all ranks for which verify() is quick: a proof with this
/// many takes 0.8 GiB and eight seconds.
inline constexpr std::uint64_t kMostProvenChunks = 16'000'000;
/// The largest number of steps of all ranks for which a proof by symmetry is quick, since it makes
/// the schedules of all ranks one by one.
inline constexpr std::uint64_t kMostStepsBySymmetry = 500'000'000;

/// Proves claims 1 to 5 for all ranks of a plan whose schedules together would not fit into memory.
/// `plan` makes the schedules one by one on the threads of `run` (if null, on the calling thread).
/// First, each rank's schedule is shown to be the image of its representative's schedule (claim
/// "symmetry"). Then the claims are proven for the representatives, and so hold for all images.
/// This proof refuses some plans that the proof above may accept: plans that use other ranks'
/// memory, plans with a root, barriers, and plans whose order or progress depends on differences
/// between ranks.
Status verify(const Symmetry& symmetry,
              const ScheduleMaker& plan,
              const ParallelFor& run = nullptr);

}  // namespace xylem::collectives
