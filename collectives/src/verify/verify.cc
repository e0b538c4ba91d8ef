// SPDX-License-Identifier: Apache-2.0
//
// Proves the claims in an order in which each relies on earlier ones: form, progress, then order,
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

namespace {

Status verify_joined(std::span<const Schedule> ranks, const Symmetry* symmetry) {
  XYLEM_TRY(const World world, join(ranks, symmetry));
  XYLEM_TRY(check_progress(world));
  if (world.shape().collective == Collective::barrier) return check_barrier(world);
  return check_memory(world);
}

}  // namespace
}  // namespace verifier

std::uint64_t proof_chunks(const Schedule& schedule) {
  std::uint64_t chunks = schedule.scratch.size() +
                         chunk_count(schedule, schedule.rank, Buffer::input) +
                         chunk_count(schedule, schedule.rank, Buffer::output);
  for (const Step& step : schedule.steps) {
    chunks += std::uint64_t{step.chunk_count} + step.source_count;
  }
  return chunks;
}

Status verify(std::span<const Schedule> ranks) {
  XYLEM_TRY(verifier::check_form(ranks));
  return verifier::verify_joined(ranks, nullptr);
}

Status verify(const Symmetry& symmetry, const ScheduleMaker& plan, const ParallelFor& run) {
  if (symmetry.ranks() > verifier::kMaxRanks) {
    return failure(Code::bad_schedule, fmt::format("form: {} schedules: 1 to {} are possible",
                                                   symmetry.ranks(), verifier::kMaxRanks));
  }
  std::vector<Schedule> representatives;
  representatives.reserve(symmetry.representatives());
  for (std::uint32_t rank = 0; rank < symmetry.representatives(); ++rank) {
    representatives.push_back(plan(rank));
  }
  XYLEM_TRY(verifier::check_form(representatives, &symmetry));
  XYLEM_TRY(verifier::check_images(representatives, symmetry, plan, run));
  return verifier::verify_joined(representatives, &symmetry);
}

}  // namespace xylem::collectives
