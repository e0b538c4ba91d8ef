// SPDX-License-Identifier: Apache-2.0
#include "reservation.h"

#include "slices.h"

namespace xylem::execution {

using collectives::kNone;
using transport::ReserveResult;

Reservation Reservation::reserve(Execution& execution,
                                 const ProgramStep& step,
                                 StepId maker,
                                 std::uint32_t slice) {
  Reservation made(execution, slice);
  if (step.cast == kNone || step.is_unawaited) return made;
  auto& run = execution.run;
  const auto& program = *run.program;
  const std::uint64_t bytes = program.slice_size(step, slice);
  run.reserved_sends.clear();
  run.reserved_endpoints.clear();
  transport::Views* views = nullptr;
  for (const StepId id : program.sends_of(program.casts[step.cast])) {
    const ProgramStep& send = program.steps[id];
    const Link& link = execution.peers->link(program.lanes[send.lane]);
    const bool shares = bytes > link.inline_bytes && bytes <= link.view_bytes &&
                        (views == nullptr || views == link.views);
    if (!shares || run.steps[id].issued != slice || run.head_of(send.lane) != id ||
        !run.has_room(id) || run.ready_slices(send, maker, slice) <= slice) {
      continue;
    }
    views = link.views;
    run.reserved_sends.push_back(id);
    run.reserved_endpoints.push_back(link.endpoint);
  }
  if (views == nullptr) return made;
  // No slot is needed for memory that the peers can read. But a result that is written with
  // non-temporal stores is not in the cache at its own place, so peers read it faster from a slot.
  const bool leaves_cache = maker != kNone && run.non_temporal;
  const auto source = region_of(run, program.steps[run.reserved_sends.front()], slice);
  if (!leaves_cache && views->is_readable(source)) return made;
  made.result_ = views->reserve(run.reserved_endpoints, bytes, made.slot_);
  if (made.result_ == ReserveResult::reserved) made.views_.reset(views);
  return made;
}

void Reservation::commit() {
  Run& run = execution_->run;
  transport::Views& views = *views_.release();
  for (std::size_t i = 0; i < run.reserved_sends.size(); ++i) {
    const StepId id = run.reserved_sends[i];
    const ProgramStep& send = run.program->steps[id];
    views.commit(run.reserved_endpoints[i], tag_of(*execution_, send, slice_));
    ++run.steps[id].issued;
    execution_->complete_slice(id, slice_);
    const StepId next = run.head_of(send.lane);
    if (next != kNone) run.queue_again(next);
  }
}

}  // namespace xylem::execution
