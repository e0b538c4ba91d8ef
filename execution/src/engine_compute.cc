// SPDX-License-Identifier: Apache-2.0
//
// Engine: work that is pending on a Compute, and gates.
//
// A slice of a copy or reduction is enqueued as soon as all slices that it reads have been enqueued
// or have completed. The engine passes the tickets that are still pending, so that the device keeps
// the order. It polls the oldest work of each queue. When a slice has completed, the messages that
// wait for it may go.
//
// A message that lies in device memory is a view (transport/views.h): the work reads it there, and
// the view is released when the work has completed.
//
// Nothing of a call is enqueued before its gate is open. The calls share the queues, and a gate may
// open only when an earlier call has ended. If work behind the gate were in the queues already, the
// rest of the earlier call would wait behind it for ever.
#include "xylem/execution/engine.h"

#include <algorithm>
#include <utility>

namespace xylem::execution {

using collectives::EdgeKind;

/// Enqueues a slice of a copy or a reduction.
Ticket Engine::compute(Execution& execution, StepId id, std::uint32_t slice, std::byte* target) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  const ComputeWork work = work_of(run, step, slice, target);
  Compute& compute = run.device.compute != nullptr ? *run.device.compute : host_;
  const std::uint32_t queues = compute.queues();
  if (queues == 0) return compute.enqueue(0, work, {});
  find_pending(execution, step, slice);
  // All slices of a step are on one queue, so they complete in order.
  return compute.enqueue(id % queues, work, after_);
}

/// Lists the pending work that a slice of a computed step has to follow.
void Engine::find_pending(const Execution& execution,
                          const ProgramStep& step,
                          std::uint32_t slice) {
  const auto& run = execution.run;
  const auto& program = *run.program;
  after_.clear();
  for (std::uint32_t e = step.first_edge; e < step.first_edge + step.edge_count; ++e) {
    const auto& edge = program.edges[e];
    const ProgramStep& before = program.steps[edge.before];
    if (!before.is_computed()) continue;
    std::uint32_t last = slice;
    if (edge.kind == EdgeKind::whole) {
      last = before.slices - 1;
    } else if (edge.kind == EdgeKind::lag) {
      if (slice < program.window) continue;
      last = slice - program.window;
    }
    if (last < run.steps[edge.before].completed) continue;
    after_.push_back(run.tickets[edge.before * program.window + last % program.window]);
  }
}

void Engine::add_pending(const PendingWork& work) {
  Execution& execution = *work.execution;
  ++execution.outstanding;
  ++pending_count_;
  pending_queue(*execution.run.device.compute, work.ticket.queue).work.push_back(work);
}

/// Notes a slice that has been enqueued. Copies and reductions that read it may be enqueued at
/// once.
void Engine::await(Execution& execution, StepId id, std::uint32_t slice, Ticket ticket) {
  auto& run = execution.run;
  const auto& program = *run.program;
  run.tickets[id * program.window + slice % program.window] = ticket;
  add_pending({&execution, id, slice, ticket});
  const ProgramStep& step = program.steps[id];
  for (std::uint32_t s = 0; s < step.successor_count; ++s) {
    const StepId next = program.successors[step.first_successor + s];
    if (program.steps[next].is_computed()) queue(execution, next);
  }
}

void Engine::post_copy(Execution& execution, const OnDevice::Copy& copy) {
  auto& device = execution.run.device;
  device.copy = copy;
  if (device.gate.is_pending()) return await_gate(execution);
  begin_copy(execution);
}

void Engine::post_copy_before_gate(Execution& execution, const OnDevice::Copy& copy) {
  execution.run.device.copy = copy;
  begin_copy(execution);
}

void Engine::begin_copy(Execution& execution) {
  auto& device = execution.run.device;
  OnDevice::Copy copy = std::exchange(device.copy, {});
  if (copy.bytes == 0) {
    listener_.on_copied(execution);
    return end_if_idle(execution);
  }
  ComputeWork work;
  work.bytes = copy.bytes;
  work.target = static_cast<std::byte*>(copy.target);
  work.sources = {&copy.source, 1};
  const Ticket ticket = device.compute->enqueue(0, work, {});
  if (!ticket.is_pending()) {
    if (copy.view.views != nullptr) copy.view.views->release(copy.view.view);
    listener_.on_copied(execution);
    return end_if_idle(execution);
  }
  add_pending({&execution, kPointToPoint, 0, ticket, copy.view});
}

/// Enqueues the copy of a slice in device memory to its place.
Ticket Engine::copy_to_place(const Run& run, const HeldView& view) {
  const ProgramStep& step = run.program->steps[view.step];
  Compute& compute = *run.device.compute;
  const void* source = view.view.data;
  ComputeWork work;
  work.bytes = run.program->slice_size(step, view.slice);
  work.target = place_of(run, step.target, view.slice);
  work.sources = {&source, 1};
  return compute.enqueue(view.step % compute.queues(), work, {});
}

/// Lets the device copy a slice that has arrived in device memory to its place. False if the device
/// is done at once.
bool Engine::fetch(Execution& execution, const HeldView& view) {
  const Ticket ticket = copy_to_place(execution.run, view);
  if (ticket.is_pending()) {
    add_pending({&execution, view.step, view.slice, ticket, view});
    return true;
  }
  if (!view.views->release(view.view)) lose_view(execution, view.step);
  return false;
}

/// Notes that pending work reads the views of a slice.
void Engine::mark_read(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    const Place& place = run.program->sources[step.first_source + i];
    if (place.view != collectives::kNone) {
      run.views[place.view + slice % run.program->window].is_read = true;
    }
  }
}

/// Lets the device copy a view to its place. What reads the slice waits until that has ended.
void Engine::put_away_on_device(Execution& execution, HeldView& held) {
  const Ticket ticket = copy_to_place(execution.run, held);
  if (!ticket.is_pending()) return release(execution, held);
  held.is_put_away = true;
  add_pending({&execution, held.step, held.slice, ticket, {}, /*puts_away=*/true});
}

/// True if a view that a slice of a step reads is being copied to its place.
bool Engine::waits_for_put_away(const Run& run,
                                const ProgramStep& step,
                                std::uint32_t slice) noexcept {
  const auto first = run.program->sources.begin() + step.first_source;
  return std::any_of(first, first + step.source_count, [&](const Place& place) {
    return place.view != collectives::kNone &&
           run.views[place.view + slice % run.program->window].is_put_away;
  });
}

/// A view has been copied to its place.
void Engine::end_put_away(const PendingWork& work) {
  auto& run = work.execution->run;
  const Place& place = run.program->steps[work.step].target;
  HeldView& held = run.views[place.view + work.slice % run.program->window];
  held.is_put_away = false;
  release(*work.execution, held);
}

void Engine::await_gate(Execution& execution) {
  ++execution.outstanding;
  ++pending_count_;
  closed_gates_.push_back(&execution);
}

Engine::PendingQueue& Engine::pending_queue(Compute& compute, std::uint32_t queue) {
  for (PendingQueue& pending : pending_) {
    if (pending.compute == &compute && pending.queue == queue) return pending;
  }
  return pending_.emplace_back(PendingQueue{&compute, queue, {}});
}

void Engine::look_at_work() {
  for (std::size_t i = 0; i < closed_gates_.size();) {
    Execution& execution = *closed_gates_[i];
    if (!execution.run.device.compute->has_completed(execution.run.device.gate)) {
      ++i;
      continue;
    }
    closed_gates_.erase(closed_gates_.begin() + static_cast<std::ptrdiff_t>(i));
    --pending_count_;
    open_gate(execution);
  }
  // work_ended() may enqueue more work and add queues to `pending_`. References to elements of a
  // deque stay valid then, but iterators do not.
  for (std::size_t i = 0; i < pending_.size(); ++i) {  // NOLINT(modernize-loop-convert)
    PendingQueue& pending = pending_[i];
    while (!pending.work.empty() && pending.compute->has_completed(pending.work.front().ticket)) {
      const PendingWork work = pending.work.front();
      pending.work.pop_front();
      --pending_count_;
      work_ended(work);
    }
  }
}

void Engine::work_ended(const PendingWork& work) {
  Execution& execution = *work.execution;
  execution.acquire();  // The execution may end within this function.
  --execution.outstanding;
  if (work.view.views != nullptr && !work.view.views->release(work.view.view)) {
    lose_view(execution, work.step);
  }
  if (work.puts_away) {
    end_put_away(work);
  } else if (work.step != kPointToPoint) {
    const ProgramStep& step = execution.run.program->steps[work.step];
    if (step.is_computed()) release_views(execution, step, work.slice);
  }
  if (execution.health && !execution.run.is_lost && !work.puts_away) {
    if (const Status health = execution.run.device.compute->health(); !health) {
      listener_.on_compute_error(execution, health);
    } else if (work.step == kPointToPoint) {
      listener_.on_copied(execution);
    } else {
      advance_after(work);
    }
  }
  run_and_end(execution);
  execution.release();
}

/// Handles a completed slice: slices that wait for it may be issued now, and so may further slices
/// of the same step.
void Engine::advance_after(const PendingWork& work) {
  Execution& execution = *work.execution;
  const ProgramStep& step = execution.run.program->steps[work.step];
  slice_done(execution, work.step, work.slice);
  if (execution.run.steps[work.step].issued < step.slices) queue(execution, work.step);
}

/// The gate of a call has opened: the call begins.
void Engine::open_gate(Execution& execution) {
  execution.acquire();  // The execution may end within this function.
  --execution.outstanding;
  forget_gate(execution.run.device);
  if (const Status health = execution.run.device.compute->health(); !health) {
    listener_.on_compute_error(execution, health);
    end_if_idle(execution);
  } else if (execution.run.program == nullptr) {
    begin_copy(execution);
  } else {
    queue_all(execution.run);
    run_and_end(execution);
  }
  execution.release();
}

void Engine::forget_gate(OnDevice& device) noexcept {
  if (device.gate.is_pending()) device.compute->forget(device.gate);
  device.gate = {};
}

void Engine::run_and_end(Execution& execution) {
  if (!execution.has_ended && !execution.run.ready.empty() && !execution.is_busy) {
    run_ready(execution);
  }
  end_if_idle(execution);
}

/// Called when an execution fails: cancels its pending work, and stops waiting for its gate.
void Engine::cancel_work(Execution& execution) {
  for (PendingQueue& pending : pending_) {
    for (const PendingWork& work : pending.work) {
      if (work.execution == &execution) pending.compute->cancel(work.ticket);
    }
  }
  const auto gates = static_cast<std::uint32_t>(std::erase(closed_gates_, &execution));
  execution.outstanding -= gates;
  pending_count_ -= gates;
}

}  // namespace xylem::execution
