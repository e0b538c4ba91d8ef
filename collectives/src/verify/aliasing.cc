// SPDX-License-Identifier: Apache-2.0
//
// Checks claims 1 to 3 of verify.h, under each aliasing that the collective allows.
#include "verify/memory.h"
#include "verify/values.h"

#include <fmt/format.h>

namespace xylem::collectives::verifier {

Status check_memory(const World& world) {
  std::uint64_t chunks = 0;
  for (const Schedule& schedule : world.ranks) {
    chunks += schedule.scratch.size();
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      chunks += chunk_count(schedule, schedule.rank, buffer);
    }
  }
  if (chunks >= kNone) {
    return failure(Code::bad_schedule,
                   fmt::format("form: {} chunks in all: too many to prove", chunks));
  }
  const std::vector<Global> order = topological_order(world);
  XYLEM_TRY(check_lifetime(world, order));
  const Locations apart(world, Aliasing::out_of_place);
  XYLEM_TRY(check_order(world, order, apart));
  Execution execution(world, apart);
  XYLEM_TRY(execution.run(order));
  XYLEM_TRY(execution.check_outputs());
  if (!allows_in_place(world.ranks[0].shape.collective)) return {};
  const Locations overlaid(world, Aliasing::in_place);
  XYLEM_TRY(check_order(world, order, overlaid));
  // If every step sees the same values in place as out of place, the same holds for any mixture of
  // ranks in place and out of place.
  return execution.repeat(order, overlaid);
}

}  // namespace xylem::collectives::verifier
