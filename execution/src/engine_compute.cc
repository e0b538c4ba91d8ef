// SPDX-License-Identifier: Apache-2.0
//
// Engine: work that is pending on a Compute, and gates.
//
// A slice of a copy or reduction is enqueued as soon as all slices that it reads have been enqueued
// or have completed. The engine passes the tickets that are still pending, so that the device keeps
// the order. It polls the oldest work of each queue. When a slice has completed, the messages that
// wait for it may go.
//
// To give a device work takes microseconds, whatever its size. So a device gets slices that lie
// next to each other as one piece. It is given two pieces of a step as soon as their slices are
// there. Meanwhile further slices gather, and become the next piece when one of the two is done, or
// when they are kFullPiece bytes. So a slow call has small pieces, which go on early, and a fast
// call large ones. Other ranks see slices, however large the pieces are.
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

namespace {

/// A step whose device has this many pieces to do gives it another one only if that is full.
constexpr std::uint32_t kPiecesAhead = 2;
constexpr std::uint64_t kFullPiece = 1 << 20;

}  // namespace

/// True if a slice lies behind the one before it, at its target and at all sources.
bool Engine::is_adjacent(const Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  const Program& program = *run.program;
  const auto is_next = [&](const Place& place) {
    return !place.ring || slice % program.window != 0;
  };
  const auto is_next_view = [&](const Place& place) {
    const HeldView& before = run.views[place.view + (slice - 1) % program.window];
    const HeldView& held = run.views[place.view + slice % program.window];
    const bool is_shown = held.views != nullptr;
    if (is_shown != (before.views != nullptr)) return false;
    return is_shown ? held.view.data == before.view.data + program.slice_bytes : is_next(place);
  };
  const auto first = program.sources.begin() + step.first_source;
  return is_next(step.target) &&
         std::all_of(first, first + step.source_count, [&](const Place& source) {
           return source.view == collectives::kNone ? is_next(source) : is_next_view(source);
         });
}

/// Enqueues the next piece of a copy or reduction, whose slices before `ready` may be enqueued.
void Engine::advance_on_device(Execution& execution, StepId id, std::uint32_t ready) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  auto& state = run.steps[id];
  Slices piece{state.issued};
  if (waits_for_put_away(run, step, piece.first)) return queue_again(execution, id);
  while (piece.first + piece.count < ready && piece.count * program.slice_bytes < kFullPiece &&
         is_adjacent(run, step, piece.first + piece.count) &&
         !waits_for_put_away(run, step, piece.first + piece.count)) {
    ++piece.count;
  }
  // When a piece of this step has been done, the step is looked at again.
  const bool is_full = piece.count * program.slice_bytes >= kFullPiece;
  if (state.pieces >= kPiecesAhead && !is_full) return;
  const Ticket ticket = compute(execution, id, piece, place_of(run, step.target, piece.first));
  state.issued += piece.count;
  if (ticket.is_pending()) {
    await(execution, id, piece, ticket);
  } else {
    for (std::uint32_t slice = piece.first; slice <= piece.last(); ++slice) {
      release_views(execution, step, slice);
      slice_done(execution, id, slice);
    }
  }
  if (state.issued < step.slices) queue_again(execution, id);
}

/// Runs or enqueues slices of a copy or a reduction.
Ticket Engine::compute(Execution& execution, StepId id, const Slices& slices, std::byte* target) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  const ComputeWork work = work_of(run, step, slices, target);
  Compute& compute = run.device.compute != nullptr ? *run.device.compute : host_;
  const std::uint32_t queues = compute.queues();
  if (queues == 0) return compute.enqueue(0, work, {});
  // What the last slice follows comes after what the others follow.
  find_pending(execution, step, slices.last());
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

/// Notes a piece that has been enqueued. Copies and reductions that read its slices may be enqueued
/// at once.
void Engine::await(Execution& execution, StepId id, const Slices& piece, Ticket ticket) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const ProgramStep& step = program.steps[id];
  ++run.steps[id].pieces;
  for (std::uint32_t slice = piece.first; slice <= piece.last(); ++slice) {
    run.tickets[id * program.window + slice % program.window] = ticket;
    mark_read(run, step, slice);
    add_pending({.execution = &execution,
                 .step = id,
                 .slice = slice,
                 .ticket = ticket,
                 .is_last = slice == piece.last()});
  }
  for (std::uint32_t s = 0; s < step.successor_count; ++s) {
    const StepId next = program.successors[step.first_successor + s];
    if (program.steps[next].is_computed()) queue(execution, next);
  }
}

void Engine::post_copy(Execution& execution, const OnDevice::Copy& copy, Deadline limit) {
  auto& device = execution.run.device;
  device.copy = copy;
  if (device.gate.is_pending()) return await_gate(execution, limit);
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
  add_pending(
      {.execution = &execution, .step = kPointToPoint, .ticket = ticket, .view = copy.view});
}

/// Enqueues the copy of slices in device memory, which begin with this view, to their places.
Ticket Engine::copy_to_place(const Run& run, const HeldView& view, std::uint32_t slices) {
  const ProgramStep& step = run.program->steps[view.step];
  Compute& compute = *run.device.compute;
  const void* source = view.view.data;
  ComputeWork work;
  work.bytes = (slices - 1) * run.program->slice_bytes +
               run.program->slice_size(step, view.slice + slices - 1);
  work.target = place_of(run, step.target, view.slice);
  work.sources = {&source, 1};
  return compute.enqueue(view.step % compute.queues(), work, {});
}

/// Lets the device copy slices of a receive, which have arrived in device memory, to their places.
void Engine::fetch(Execution& execution, StepId id) {
  auto& run = execution.run;
  const Program& program = *run.program;
  const bool may_wrap = program.steps[id].target.ring;
  std::size_t first = 0;
  while (first < run.unfetched.size()) {
    const HeldView& view = run.unfetched[first];
    if (view.step != id) {
      ++first;
      continue;
    }
    std::uint32_t slices = 1;
    for (std::size_t at = first + 1;
         at < run.unfetched.size() && slices * program.slice_bytes < kFullPiece; ++at, ++slices) {
      const HeldView& next = run.unfetched[at];
      const bool is_next = next.step == id && next.slice == view.slice + slices &&
                           next.view.data == view.view.data + slices * program.slice_bytes &&
                           !(may_wrap && next.slice % program.window == 0);
      if (!is_next) break;
    }
    // When a piece of this step has been done, fetch() is called again.
    const bool is_full = slices * program.slice_bytes >= kFullPiece;
    if (run.steps[id].pieces >= kPiecesAhead && !is_full) return;
    fetch_piece(execution, first, slices);
  }
}

/// The same for some slices of Run::unfetched.
void Engine::fetch_piece(Execution& execution, std::size_t first, std::uint32_t slices) {
  auto& run = execution.run;
  const auto begin = run.unfetched.begin() + static_cast<std::ptrdiff_t>(first);
  const StepId id = begin->step;
  const Ticket ticket = copy_to_place(run, *begin, slices);
  if (ticket.is_pending()) ++run.steps[id].pieces;
  for (std::uint32_t i = 0; i < slices; ++i) {
    const HeldView& view = begin[i];
    if (ticket.is_pending()) {
      add_pending({.execution = &execution,
                   .step = id,
                   .slice = view.slice,
                   .ticket = ticket,
                   .view = view,
                   .is_last = i + 1 == slices});
      continue;
    }
    if (!view.views->release(view.view)) lose_view(execution, id);
    if (!run.is_lost) slice_done(execution, id, view.slice);
  }
  run.unfetched.erase(begin, begin + slices);
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
  add_pending({.execution = &execution,
               .step = held.step,
               .slice = held.slice,
               .ticket = ticket,
               .puts_away = true});
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

void Engine::await_gate(Execution& execution, Deadline limit) {
  ++execution.outstanding;
  ++pending_count_;
  closed_gates_.push_back({&execution, limit});
}

Engine::PendingQueue& Engine::pending_queue(Compute& compute, std::uint32_t queue) {
  for (PendingQueue& pending : pending_) {
    if (pending.compute == &compute && pending.queue == queue) return pending;
  }
  return pending_.emplace_back(PendingQueue{&compute, queue, {}});
}

void Engine::look_at_work() {
  for (std::size_t i = 0; i < closed_gates_.size();) {
    const auto [execution, limit] = closed_gates_[i];
    const bool is_open = execution->run.device.compute->has_completed(execution->run.device.gate);
    if (!is_open && !limit.passed()) {
      ++i;
      continue;
    }
    closed_gates_.erase(closed_gates_.begin() + static_cast<std::ptrdiff_t>(i));
    --pending_count_;
    if (is_open) {
      open_gate(*execution);
    } else {
      give_up_gate(*execution);
    }
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
  const bool is_slice = work.step != kPointToPoint && !work.puts_away;
  if (is_slice && work.is_last) --execution.run.steps[work.step].pieces;
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
  if (work.is_last) run_and_end(execution);
  execution.release();
}

/// Handles a completed slice: slices that wait for it may be issued now, and so may further slices
/// of the same step.
void Engine::advance_after(const PendingWork& work) {
  Execution& execution = *work.execution;
  const ProgramStep& step = execution.run.program->steps[work.step];
  slice_done(execution, work.step, work.slice);
  if (work.is_last && !step.is_computed()) fetch(execution, work.step);
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

/// The gate of a copy has not opened in time.
void Engine::give_up_gate(Execution& execution) {
  execution.acquire();  // The execution may end within this function.
  --execution.outstanding;
  listener_.on_late_gate(execution, std::exchange(execution.run.device.copy, {}));
  end_if_idle(execution);
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
  const auto is_its_gate = [&](const ClosedGate& closed) { return closed.execution == &execution; };
  const auto gates = static_cast<std::uint32_t>(std::erase_if(closed_gates_, is_its_gate));
  execution.outstanding -= gates;
  pending_count_ -= gates;
}

}  // namespace xylem::execution
