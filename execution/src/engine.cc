// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/engine.h"

#include "fusion.h"
#include "slices.h"
#include "xylem/base/check.h"

#include <algorithm>
#include <utility>

namespace xylem::execution {

using collectives::kNone;
using collectives::StepKind;
using transport::Posted;

namespace {

/// Calls DeviceMemory::renew() of the device, since the application may have freed and allocated
/// memory since the last call.
void renew_device_memory(const Execution& execution) noexcept {
  Compute* const compute = execution.run.device.compute;
  transport::DeviceMemory* const memory = compute == nullptr ? nullptr : compute->device_memory();
  if (memory != nullptr) memory->renew();
}

void forget_gate(OnDevice& device) noexcept {
  if (device.gate.is_pending()) device.compute->forget(device.gate);
  device.gate = {};
}

/// True if a step sends slices through the caches of the CPU, and not from the memory of a device.
bool passes_caches(const Run& run, const ProgramStep& step, const Link& link) noexcept {
  if (link.view_bytes == 0) return false;
  return run.device.compute == nullptr || step.source_count == 0 ||
         run.device.memory[run.program->source_of(step).base].kind == MemoryKind::host;
}

/// True if the peer has not read several slices that have been written. Writing further slices
/// would only displace the unread slices from the caches.
bool is_far_ahead(const Link& link) noexcept {
  constexpr std::uint32_t kAhead = 4;
  return link.views->unread(link.endpoint) >= kAhead;
}

}  // namespace

// ---- begin and end ----

/// True if the output lies within the input. Non-temporal stores are then useless: the lines of the
/// output are in the cache, since the input has just been read.
bool Engine::is_over_input(const Run& run) noexcept {
  const auto* input = run.base[static_cast<int>(collectives::Buffer::input)];
  const auto* output = run.base[static_cast<int>(collectives::Buffer::output)];
  return input <= output && output + run.program->bytes_of(collectives::Buffer::output) <=
                                input + run.program->bytes_of(collectives::Buffer::input);
}

void Engine::activate(Execution& execution) noexcept {
  execution.active_previous = nullptr;
  execution.active_next = active_;
  if (active_ != nullptr) active_->active_previous = &execution;
  active_ = &execution;
}

void Engine::deactivate(Execution& execution) noexcept {
  if (execution.active_previous != nullptr) {
    execution.active_previous->active_next = execution.active_next;
  } else {
    active_ = execution.active_next;
  }
  if (execution.active_next != nullptr) {
    execution.active_next->active_previous = execution.active_previous;
  }
  execution.active_previous = execution.active_next = nullptr;
}

void Engine::start(Execution& execution) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const bool is_immediate = run.device.compute == nullptr;
  run.non_temporal = is_immediate && is_non_temporal(run);
  XYLEM_CHECK(is_immediate || !program.is_exchange, program.algorithm);
  if (program.is_exchange) {
    exchanges_.post_rest(execution);
    return end_if_idle(execution);
  }
  if (!is_immediate) run.tickets.assign(program.steps.size() * program.window, {});
  renew_device_memory(execution);
  XYLEM_CHECK(!is_immediate || !run.device.gate.is_pending(), program.algorithm);
  run.steps.assign(program.steps.size(), StepState{});
  run.lanes.assign(program.lanes.size(), LaneState{});
  run.views.assign(program.view_count, HeldView{});
  run.steps_left = static_cast<std::uint32_t>(program.steps.size());
  if (run.device.gate.is_pending()) {
    return pending_.add_gate(execution, Deadline::at(Clock::time_point::max()));
  }
  run.queue_all();
  run_ready(execution);
}

Message& Engine::post_send(Execution& execution,
                           Link link,
                           transport::Tag tag,
                           transport::ConstRegion source) {
  Message& message = messages_.acquire(execution, link);
  message.step = kPointToPoint;
  if (source.memory.kind != MemoryKind::host) renew_device_memory(execution);
  if (link.transport->send(link.endpoint, tag, source, message) == Posted::done) {
    MessagePool::on_done(message);
  }
  return message;
}

Message& Engine::post_recv(Execution& execution,
                           Link link,
                           transport::Tag tag,
                           transport::Tag mask,
                           transport::Region target) {
  Message& message = messages_.acquire(execution, link);
  message.step = kPointToPoint;
  message.incoming = true;
  const Memory reader = execution.run.device.reader();
  const bool may_show = reader.kind != MemoryKind::host && link.views != nullptr;
  const Posted posted = may_show && mask == transport::kExactMatch
                            ? link.views->recv_view(tag, target, message, reader)
                            : link.transport->recv(tag, mask, target, message);
  if (posted == Posted::done) MessagePool::on_done(message);
  return message;
}

void Engine::post_copy(Execution& execution, const OnDevice::Copy& copy, Deadline limit) {
  auto& device = execution.run.device;
  device.copy = copy;
  if (device.gate.is_pending()) return pending_.add_gate(execution, limit);
  begin_copy(execution);
}

void Engine::post_copy_before_gate(Execution& execution, const OnDevice::Copy& copy) {
  execution.run.device.copy = copy;
  begin_copy(execution);
}

void Engine::begin_copy(Execution& execution) {
  const OnDevice::Copy copy = std::exchange(execution.run.device.copy, {});
  if (devices_.enqueue_copy(execution, copy)) return;
  listener_.on_copied(execution);
  end_if_idle(execution);
}

void Engine::fail(Execution& execution, Status why) {
  if (!execution.health || execution.has_ended) return;
  execution.health = std::move(why);
  execution.failed_at = Clock::now();
  execution.run.ready.clear();
  execution.run.later.clear();
  execution.acquire();
  for (Message* message = execution.messages; message != nullptr;) {
    Message* next = message->next;
    message->transport->cancel(*message);
    message = next;
  }
  pending_.cancel(execution);
  end_if_idle(execution);
  execution.release();
}

/// Ends an execution that is complete or has failed, if it has no outstanding messages, work or
/// gates.
void Engine::end_if_idle(Execution& execution) {
  if (execution.outstanding > 0 || execution.has_ended) return;
  const bool is_over = execution.run.steps_left == 0 && !execution.run.is_lost;
  if (!execution.health || is_over) finish(execution, execution.health);
}

void Engine::finish(Execution& execution, Status outcome) {
  views_.release_all(execution);
  deactivate(execution);
  execution.has_ended = true;
  OnDevice& device = execution.run.device;
  // A receive that failed before its gate opened may still hold the view of a message that has
  // arrived.
  if (device.copy.view.views != nullptr) device.copy.view.views->release(device.copy.view.view);
  device.copy = {};
  forget_gate(device);
  if (device.end.is_pending()) device.compute->open(device.end);
  listener_.on_ended(execution, std::move(outcome));
}

// ---- completions ----

unsigned Engine::run_round() {
  std::uint64_t moved = 0;
  while (Message* const message = messages_.next_completed()) {
    Execution& execution = *message->owner;
    execution.acquire();  // Handling the message may end the execution.
    on_message(*message);
    if (!execution.run.ready.empty() && !execution.has_ended) run_soon(execution);
    execution.release();
    ++moved;
  }
  moved += pending_.poll([&](Execution& execution, bool is_open) { on_gate(execution, is_open); },
                         [&](const PendingWork::Work& work) { on_work(work); });
  round_.swap(busy_);
  for (Execution* execution : round_) {
    const std::uint64_t before = execution->advanced;
    execution->is_busy = false;
    const bool goes_on = execution->health && !execution->run.is_lost;
    if (goes_on && !execution->run.unfetched.empty()) devices_.fetch(*execution);
    if (!execution->has_ended) run_ready(*execution);
    moved += execution->advanced - before;
    execution->release();
  }
  round_.clear();
  views_.evict_if_unchanged(active_);
  return static_cast<unsigned>(moved);
}

void Engine::on_message(Message& message) {
  if (message.step == kPointToPoint) return on_point_to_point(message);
  Execution& execution = *message.owner;
  if (!execution.run.program->is_exchange) return on_slice(message);
  exchanges_.on_message(message);
  end_if_idle(execution);
}

void Engine::on_point_to_point(Message& message) {
  Execution& execution = *message.owner;
  if (message.code == Code::ok) {
    listener_.on_body(message);
  } else if (execution.health) {
    report(execution, kNone, message.code);
  }
  if (message.view.data != nullptr) message.views->release(message.view);
  messages_.release(message);
  end_if_idle(execution);
}

/// Handles the message of a slice, which has been sent or has arrived.
void Engine::on_slice(Message& message) {
  Execution& execution = *message.owner;
  auto& run = execution.run;
  const StepId id = message.step;
  const auto& step = run.program->steps[id];
  const std::uint32_t slice = message.slice;
  const bool right_size =
      !message.incoming || step.bytes == 0 || message.bytes == run.program->slice_size(step, slice);
  const Code code = message.code == Code::ok && !right_size ? Code::mismatch : message.code;
  const bool shows = message.in_place && message.code == Code::ok && message.view.data != nullptr;
  const HeldView view{message.views, message.view, id, slice};
  messages_.release(message);
  --run.lanes[step.lane].in_flight;
  const bool goes_on = execution.health && !run.is_lost;
  if (shows && (!goes_on || code != Code::ok)) view.views->release(view.view);
  if (!goes_on) return end_if_idle(execution);
  if (code != Code::ok) return report(execution, run.program->lanes[step.lane].peer, code);
  if (shows && view.view.is_on_device && step.target.view == kNone) {
    // The slice is complete when the device has copied it (DevicePieces::fetch).
    run.unfetched.push_back(view);
    run.queue(id);
    return add_to_round(execution);
  }
  if (shows) receive_slice(views_, execution, view);
  // The sender may have withdrawn the message while it was copied.
  if (run.is_lost) return end_if_idle(execution);
  execution.complete_slice(id, slice);
  // The lane has room for another message.
  run.queue(id);
}

/// Reports a failed message to the listener. If the device has a fault, an internal error of the
/// transport is reported as the fault of the device.
void Engine::report(Execution& execution, std::uint32_t peer, Code code) {
  Compute* const compute = execution.run.device.compute;
  const Status device = compute == nullptr ? Status() : compute->health();
  if (code == Code::internal && !device) return listener_.on_compute_error(execution, device);
  listener_.on_wire_error(execution, peer, code);
}

/// Begins a call whose gate has opened. If `is_open` is false, the limit of the gate of a copy has
/// passed: reports this to the listener.
void Engine::on_gate(Execution& execution, bool is_open) {
  OnDevice& device = execution.run.device;
  if (!is_open) {
    listener_.on_late_gate(execution, std::exchange(device.copy, {}));
    return end_if_idle(execution);
  }
  forget_gate(device);
  if (const Status health = device.compute->health(); !health) {
    listener_.on_compute_error(execution, health);
    return end_if_idle(execution);
  }
  if (execution.run.program == nullptr) return begin_copy(execution);
  execution.run.queue_all();
  run_soon(execution);
}

void Engine::on_work(const PendingWork::Work& work) {
  Execution& execution = *work.execution;
  devices_.release(work);
  if (execution.health && !execution.run.is_lost && !work.evicts) {
    if (const Status health = execution.run.device.compute->health(); !health) {
      listener_.on_compute_error(execution, health);
    } else if (work.step == kPointToPoint) {
      listener_.on_copied(execution);
    } else {
      devices_.advance(work);
    }
  }
  if (!work.is_last) return;
  if (!execution.run.ready.empty() && !execution.has_ended) return run_soon(execution);
  end_if_idle(execution);
}

// ---- rounds ----

bool Engine::has_more(const Execution& execution, std::uint32_t lane) noexcept {
  const auto& run = execution.run;
  const auto& program = *run.program;
  if (program.is_exchange) return false;
  return std::ranges::any_of(program.steps_of(program.lanes[lane]), [&](StepId id) {
    return program.steps[id].is_message() && run.steps[id].issued < program.steps[id].slices;
  });
}

void Engine::run_ready(Execution& execution) {
  auto& run = execution.run;
  while (!run.ready.empty() && execution.health && !run.is_lost) {
    const StepId id = run.ready.back();
    run.ready.pop_back();
    run.steps[id].queued = false;
    advance(execution, id);
  }
  run.ready.insert(run.ready.end(), run.later.rbegin(), run.later.rend());
  run.later.clear();
  end_if_idle(execution);
  if (!run.ready.empty() && !execution.has_ended) add_to_round(execution);
}

/// Adds an execution to `busy_`. Its views are fetched and its steps run when `busy_` is next
/// handled: later in this round, or in the next one.
void Engine::add_to_round(Execution& execution) {
  if (std::exchange(execution.is_busy, true)) return;
  execution.acquire();
  busy_.push_back(&execution);
}

/// Runs the steps that are ready. If a device computes, they run when all messages and all work
/// that have completed are handled, so that adjacent slices become one piece.
void Engine::run_soon(Execution& execution) {
  if (execution.run.device.compute != nullptr) return add_to_round(execution);
  if (!execution.is_busy) run_ready(execution);
}

void Engine::advance(Execution& execution, StepId id) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  if (step.lane != kNone) return pump(execution, step.lane);
  auto& state = run.steps[id];
  const std::uint32_t ready = std::min(run.ready_slices(step), state.completed + program.window);
  if (state.issued >= ready) return;
  if (!run.tickets.empty() && step.bytes > 0) return devices_.enqueue(execution, id, ready);
  if (step.is_unawaited && step.cast != kNone) {
    for (const StepId send : program.sends_of(program.casts[step.cast])) {
      if (run.steps[send].issued <= state.issued) return run.queue_again(id);
    }
  }
  const std::uint32_t slice = state.issued;
  compute_slice(views_, execution, id, slice);
  ++state.issued;
  execution.complete_slice(id, slice);
  if (state.issued < step.slices) run.queue_again(id);
}

void Engine::pump(Execution& execution, std::uint32_t lane_index) {
  auto& run = execution.run;
  const auto& lane = run.program->lanes[lane_index];
  const Link& link = execution.peers->link(lane);
  for (;;) {
    const StepId id = run.head_of(lane_index);
    if (id == kNone || !execution.health) return;
    const ProgramStep& step = run.program->steps[id];
    const bool one_by_one = lane.outgoing && passes_caches(run, step, link);
    const std::uint32_t slice = run.steps[id].issued;
    if (slice >= run.ready_slices(run.program->steps[id]) || !run.has_room(id)) return;
    if (!issue(execution, id, slice)) return run.queue_again(id);
    if (!one_by_one) continue;
    const StepId next = run.head_of(lane_index);
    if (next != kNone) run.queue_again(next);
    return;
  }
}

/// Issues a slice of a step of a lane. False if the slice must wait for a slot, or until the peer
/// has read earlier slices.
bool Engine::issue(Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  if (!step.is_message()) {
    ++run.steps[id].issued;
    execution.complete_slice(id, slice);
    return true;
  }
  const Link& link = execution.peers->link(program.lanes[step.lane]);
  if (step.kind == StepKind::send && step.slices > 1 && passes_caches(run, step, link) &&
      is_far_ahead(link)) {
    return false;
  }
  if (step.kind == StepKind::send && step.cast != kNone) {
    const SendResult sent = send_slice(execution, id, slice);
    if (sent != SendResult::must_post) return sent == SendResult::sent;
  }
  ++run.steps[id].issued;
  ++run.lanes[step.lane].in_flight;
  if (Message* const message = post(messages_, execution, id, slice)) on_slice(*message);
  return true;
}

}  // namespace xylem::execution
