// SPDX-License-Identifier: Apache-2.0
#include "fusion.h"

#include "reservation.h"
#include "slices.h"
#include "xylem/base/copy.h"
#include "xylem/execution/host_compute.h"
#include "xylem/execution/trace.h"

namespace xylem::execution {

using collectives::kNone;

namespace {

/// The second target of Reservation::fill() when `source` is copied into a slot: `target`, or no
/// target if `source` is `target`, since the bytes are there already.
CopyTarget also_to(const Run& run, std::byte* target, const std::byte* source) noexcept {
  return {source == target ? nullptr : target, run.non_temporal};
}

/// Computes a slice, sends it from a slot that peers read, and also stores it at its own place. The
/// slice is not sent if it is computed from a message that its sender has withdrawn.
void compute_shared(HeldViews& views,
                    Execution& execution,
                    const ProgramStep& step,
                    std::uint32_t slice,
                    Reservation& slot) {
  auto& run = execution.run;
  std::byte* const target = run.address_of(step.target, slice);
  ComputeWork work = work_of(run, step, {slice}, target);
  bool is_in_slot_only = false;
  if (work.kind == ComputeWork::Kind::copy) {
    const auto* source = static_cast<const std::byte*>(run.sources[0]);
    slot.fill(source, also_to(run, target, source));
  } else if (work.kind == ComputeWork::Kind::reduce && (run.non_temporal || slot.non_temporal())) {
    work.non_temporal = run.non_temporal;
    work.shared_non_temporal = slot.non_temporal();
    work.shared = slot.memory();
    compute_on_host(work);
  } else {
    // The slice is sent first, and then copied from the slot to its own place. The bytes in the
    // slot are still in the cache.
    work.target = slot.memory();
    compute_on_host(work);
    is_in_slot_only = true;
  }
  if (const StepId withdrawn = views.end_sources(run, step, slice); withdrawn != kNone) {
    slot.abandon();
    return views.on_withdrawn(execution, withdrawn);
  }
  slot.commit();
  if (is_in_slot_only) copy_bytes(target, slot.memory(), work.bytes);
}

}  // namespace

void compute_slice(HeldViews& views, Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  if (step.bytes == 0) return;
  std::byte* const target = run.address_of(step.target, slice);
  // Without a slot, the result is sent later, from its own place. Waiting for a slot here would
  // delay the senders of the messages that this slice reads.
  if (Reservation slot = Reservation::reserve(execution, step, id, slice)) {
    compute_shared(views, execution, step, slice, slot);
  } else {
    compute_on_host(work_of(run, step, {slice}, target));
    views.release_sources(execution, step, slice);
  }
  trace(run, step, slice, Traced::result, 0, target);
}

void receive_slice(HeldViews& views, Execution& execution, const HeldView& view) {
  auto& run = execution.run;
  const std::uint32_t slice = view.slice;
  const auto& step = run.program->steps[view.step];
  const std::byte* data = view.view.data;
  trace(run, step, slice, Traced::received, 0, data);
  if (step.target.view != kNone) {
    run.view_at(step.target, slice) = view;
    return views.add(run, view);
  }
  Reservation slot = Reservation::reserve(execution, step, view.step, slice);
  // The last slice is forwarded before it is copied to its place, since the next receivers wait for
  // nothing else. But a message that its sender can withdraw is forwarded only after release() has
  // shown that it was not withdrawn.
  const bool is_copied_apart = !slot || (slice + 1 == step.slices && !view.view.may_change);
  if (slot) {
    const auto also = also_to(run, run.address_of(step.target, slice), data);
    slot.fill(data, is_copied_apart ? CopyTarget{} : also);
    if (!view.view.may_change) slot.commit();
  }
  if (is_copied_apart) copy_to_target(run, step, slice, data);
  if (!view.views->release(view.view)) {
    slot.abandon();
    return views.on_withdrawn(execution, view.step);
  }
  if (slot) slot.commit();
}

SendResult send_slice(Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  Reservation slot = Reservation::reserve(execution, step, kNone, slice);
  if (!slot) return slot.must_wait(id) ? SendResult::must_wait : SendResult::must_post;
  const std::byte* source = run.address_of(program.source_of(step), slice);
  const StepId copy_id = program.casts[step.cast].copy;
  // The last slice is sent without being copied at the same time, since its receivers wait for
  // nothing else.
  if (copy_id == kNone || slice + 1 == step.slices || run.steps[copy_id].issued != slice ||
      run.ready_slices(program.steps[copy_id]) <= slice) {
    slot.fill(source, {});
    slot.commit();
    return SendResult::sent;
  }
  const auto& copy = program.steps[copy_id];
  std::byte* const target = run.address_of(copy.target, slice);
  trace(run, copy, slice, Traced::source, 0, source);
  slot.fill(source, also_to(run, target, source));
  trace(run, copy, slice, Traced::result, 0, target);
  trace(run, copy, slice, Traced::along, 0, target);
  slot.commit();
  execution.complete_slice(copy_id, run.steps[copy_id].issued++);
  return SendResult::sent;
}

}  // namespace xylem::execution
