// SPDX-License-Identifier: Apache-2.0
//
// The schedules of all ranks taken together: one numbering of all steps, which send meets which
// receive, which wait needs which signal. What the verifier's claims are proven on.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/plan_of.h"
#include "xylem/collectives/schedule.h"
#include "xylem/collectives/symmetry.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::collectives::verifier {

inline constexpr std::size_t kMaxRanks = 65535;  ///< So that all_to_all's n² blocks have numbers.

/// A step of any rank: World::first[rank] + its id there.
using Global = std::uint32_t;

/// Without a symmetry, `ranks` are all ranks. With one they are its representatives, and stand for
/// all: a message to any image of a representative is shown as one to the representative itself.
struct World {
  std::span<const Schedule> ranks;
  const Symmetry* symmetry = nullptr;
  std::vector<Global> first;         ///< Per rank, and the number of all steps.
  std::vector<std::uint32_t> owner;  ///< Rank of each step, an index of `ranks`.
  std::vector<Pipeline> pipelines;   ///< Per rank.
  std::vector<Global> partner;       ///< Of a send its receive, and back; kNone otherwise.
  /// Of a wait the signal that it needs, of a signal the one before it to the same counter; kNone
  /// otherwise.
  std::vector<Global> signalled_by;
  /// Neighbours on a (peer, channel), earlier and later: receives, signals and waits each among
  /// themselves.
  std::vector<std::pair<Global, Global>> lanes;

  const Shape& shape() const { return ranks[0].shape; }
  /// Which of `ranks` stands for this rank, and the element of the symmetry that takes it there.
  std::uint32_t index_of(std::uint32_t rank) const {
    return symmetry == nullptr ? rank : symmetry->representative(rank);
  }
  std::uint32_t shift_of(std::uint32_t rank) const {
    return symmetry == nullptr ? 0 : symmetry->shift(rank);
  }
  const Schedule& schedule(Global id) const { return ranks[owner[id]]; }
  const Step& step(Global id) const { return schedule(id).steps[id - first[owner[id]]]; }
  /// Calls visit(Global) for all that completes before `id` does: what it comes after, its send,
  /// its signal.
  template <typename Visit>
  void for_each_before(Global id, Visit&& visit) const {
    const Step& it = step(id);
    for_each_predecessor(id, visit);
    if (it.kind == StepKind::recv) visit(partner[id]);
    if (signalled_by[id] != kNone) visit(signalled_by[id]);
  }
  /// The same for what it comes after at its own rank only.
  template <typename Visit>
  void for_each_predecessor(Global id, Visit&& visit) const {
    const Global base = first[owner[id]];
    for (const StepId before : schedule(id).predecessors_of(step(id))) visit(base + before);
  }
  /// "rank 3, step 7 (recv ch0 peer 1 scratch[0])".
  std::string describe(Global id) const;
};

/// Claim 5 of each schedule by itself: every index in bounds, every field in its range. With a
/// symmetry, of its representatives.
Status check_form(std::span<const Schedule> ranks, const Symmetry* symmetry = nullptr);
/// That the schedule of every rank is the image of its representative's, and what that takes: no
/// memory of others, blocks side by side in order. Needs check_form.
Status check_images(std::span<const Schedule> representatives,
                    const Symmetry& symmetry,
                    const PlanOf& plan,
                    const RunParts& run);
/// Claim 5 between schedules: both ends of every message agree. Needs check_form, and with a
/// symmetry check_images.
Result<World> join(std::span<const Schedule> ranks, const Symmetry* symmetry = nullptr);
/// Claim 4. Needs nothing but a joined world.
Status check_progress(const World& world);
/// All steps so that each comes after what completes before it. Needs claim 4.
std::vector<Global> topological_order(const World& world);
/// Claims 1 to 3 under every aliasing, for all but barriers. Needs claim 4.
Status check_memory(const World& world);
/// Claim 3 of a barrier: the end of each rank comes after the beginning of every other.
Status check_barrier(const World& world);
/// Claim 1 beyond steps: others touch a rank's memory only after its beginning and before its end.
Status check_lifetime(const World& world, std::span<const Global> order);

}  // namespace xylem::collectives::verifier
