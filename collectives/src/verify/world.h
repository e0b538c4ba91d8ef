// SPDX-License-Identifier: Apache-2.0
//
// The schedules of all ranks taken together: one numbering of all steps, which send meets which
// receive, which wait needs which signal. What the verifier's claims are proven on.
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace xylem::collectives::verifier {

/// A step of any rank: World::first[rank] + its id there.
using Global = std::uint32_t;

struct World {
  std::span<const Schedule> ranks;
  std::vector<Global> first;         ///< Per rank, and the number of all steps.
  std::vector<std::uint32_t> owner;  ///< Rank of each step.
  std::vector<Pipeline> pipelines;   ///< Per rank.
  std::vector<Global> partner;       ///< Of a send its receive, and back; kNone otherwise.
  /// Of a wait the signal that it needs, of a signal the one before it to the same counter; kNone
  /// otherwise.
  std::vector<Global> signalled_by;
  /// Neighbours on a (peer, channel), earlier and later: receives, signals and waits each among
  /// themselves.
  std::vector<std::pair<Global, Global>> lanes;

  const Schedule& schedule(Global id) const { return ranks[owner[id]]; }
  const Step& step(Global id) const { return schedule(id).steps[id - first[owner[id]]]; }
  /// Calls visit(Global) for all that completes before `id` does: what it comes after, its send,
  /// its signal.
  template <typename Visit>
  void for_each_before(Global id, Visit&& visit) const {
    const Global base = first[owner[id]];
    const Step& it = step(id);
    for (const StepId before : schedule(id).predecessors_of(it)) visit(base + before);
    if (it.kind == StepKind::recv) visit(partner[id]);
    if (signalled_by[id] != kNone) visit(signalled_by[id]);
  }
  /// "rank 3, step 7 (recv ch0 peer 1 scratch[0])".
  std::string describe(Global id) const;
};

/// Claim 5 of each schedule by itself: every index in bounds, every field in its range.
Status check_form(std::span<const Schedule> ranks);
/// Claim 5 between schedules: both ends of every message agree. Needs check_form.
Result<World> join(std::span<const Schedule> ranks);
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
