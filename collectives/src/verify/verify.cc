// SPDX-License-Identifier: Apache-2.0
//
// The claims, in the order in which each relies on those before it: form, progress, then order,
// aliasing and contributions.
#include "xylem/collectives/verify.h"

#include "step_text.h"
#include "verify/world.h"

#include <fmt/format.h>

namespace xylem::collectives {
namespace verifier {

std::string World::describe(Global id) const {
  return fmt::format("rank {}, step {} ({})", owner[id], id - first[owner[id]],
                     step_text(schedule(id), step(id)));
}

}  // namespace verifier

Status verify(std::span<const Schedule> ranks) {
  XYLEM_TRY(verifier::check_form(ranks));
  XYLEM_TRY(const verifier::World world, verifier::join(ranks));
  XYLEM_TRY(verifier::check_progress(world));
  if (ranks[0].shape.collective == Collective::barrier) return verifier::check_barrier(world);
  return verifier::check_memory(world);
}

}  // namespace xylem::collectives
