// SPDX-License-Identifier: Apache-2.0
//
// The schedules of all ranks combined: a numbering of all steps, the receive that matches each
// send, and the signal that each wait needs. The claims, numbered in verify.h, are proven on this
// structure.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/schedule_maker.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::collectives::verifier {

/// With more ranks, 32 bits would not be enough to number the n² blocks of all_to_all.
inline constexpr std::size_t kMaxRanks = 65535;

/// A step of any rank: World::first[rank] plus the step's id in its schedule.
using Global = std::uint32_t;

/// Without a symmetry, `ranks` are the schedules of all ranks. With a symmetry they are the
/// schedules of the representatives only, and a message to any image of a representative appears as
/// a message to the representative.
struct World {
  std::span<const Schedule> ranks;
  const Symmetry* symmetry = nullptr;
  /// First step of each rank; the last entry is the number of all steps.
  std::vector<Global> first;
  std::vector<std::uint32_t> owner;  ///< Rank of each step, as an index into `ranks`.
  std::vector<Pipeline> pipelines;   ///< pipelines[i] is the pipeline of ranks[i].
  /// For a send its receive, for a receive its send; otherwise kNone.
  std::vector<Global> partner;
  /// For a wait the signal that it needs, for a signal the previous signal to the same counter;
  /// otherwise kNone.
  std::vector<Global> signalled_by;
  /// Pairs of consecutive steps of the same kind on one (peer, channel), the earlier step first:
  /// receives, signals and waits. Sends are left out, since each is one event with its receive.
  std::vector<std::pair<Global, Global>> lanes;

  const Shape& shape() const { return ranks[0].shape; }
  /// The index in `ranks` of the representative of `rank`.
  std::uint32_t index_of(std::uint32_t rank) const {
    return symmetry == nullptr ? rank : symmetry->representative(rank);
  }
  /// The element of the symmetry that maps the representative of `rank` onto `rank`.
  std::uint32_t shift_of(std::uint32_t rank) const {
    return symmetry == nullptr ? 0 : symmetry->shift(rank);
  }
  const Schedule& schedule(Global id) const { return ranks[owner[id]]; }
  const Step& step(Global id) const { return schedule(id).steps[id - first[owner[id]]]; }
  /// Calls visit(Global) for every step for which `id` waits directly: its predecessors, for a
  /// receive its send, and signalled_by[id].
  template <typename Visit>
  void for_each_before(Global id, Visit&& visit) const {
    const Step& it = step(id);
    for_each_predecessor(id, visit);
    if (it.kind == StepKind::recv) visit(partner[id]);
    if (signalled_by[id] != kNone) visit(signalled_by[id]);
  }
  /// Calls visit(Global) for the predecessors of `id` at its own rank only.
  template <typename Visit>
  void for_each_predecessor(Global id, Visit&& visit) const {
    const Global base = first[owner[id]];
    for (const StepId before : schedule(id).predecessors_of(step(id))) visit(base + before);
  }
  /// "rank 3, step 7 (recv ch0 peer 1 scratch[0])".
  std::string describe(Global id) const;
};

/// Checks claim 5 for each schedule separately: every index in bounds, every field in its range.
/// With a symmetry, `ranks` are the schedules of the representatives.
Status check_form(std::span<const Schedule> ranks, const Symmetry* symmetry = nullptr);
/// Checks that the schedule of every rank is the image of its representative's schedule, and the
/// conditions under which an image is defined: no operand is in another rank's memory, and the
/// blocks of each operand ascend without gaps. Requires check_form().
Status check_images(std::span<const Schedule> representatives,
                    const Symmetry& symmetry,
                    const ScheduleMaker& plan,
                    const ParallelFor& run);
/// Checks claim 5 between schedules: both ends of every message agree. Returns the combined
/// schedules. Requires check_form() and, with a symmetry, check_images().
Result<World> join(std::span<const Schedule> ranks, const Symmetry* symmetry = nullptr);
/// Checks claim 4 of verify.h: no deadlock. Requires only a World that join() has returned.
Status check_progress(const World& world);
/// All steps in an order in which each step comes after all steps for which it waits. Requires
/// claim 4.
std::vector<Global> topological_order(const World& world);
/// Checks claims 1 to 3 under every aliasing, for all collectives except barriers. Requires claim
/// 4.
Status check_memory(const World& world);
/// Checks claim 3 for a barrier: each rank ends after every other rank has begun.
Status check_barrier(const World& world);
/// Checks the part of claim 1 that concerns accesses by other ranks: they access a rank's memory
/// only between the first and the last step of that rank.
Status check_lifetime(const World& world, std::span<const Global> order);

}  // namespace xylem::collectives::verifier
