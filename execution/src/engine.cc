// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/engine.h"

#include "xylem/base/check.h"
#include "xylem/execution/tag.h"

#include <utility>

namespace xylem::execution {

using collectives::kNone;
using transport::Posted;

namespace {

constexpr std::size_t kMessageBlock = 64;

}  // namespace

/// True if the output lies within the input. Its lines are in the cache then, since the input has
/// just been read, so non-temporal stores would not help.
bool Engine::is_over_input(const Run& run) noexcept {
  const auto* input = run.base[static_cast<int>(collectives::Buffer::input)];
  const auto* output = run.base[static_cast<int>(collectives::Buffer::output)];
  return input <= output && output + run.program->output_bytes <= input + run.program->input_bytes;
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
  const Compute* const compute = run.device.compute;
  const bool is_immediate = compute == nullptr || compute->queues() == 0;
  run.past_cache = is_immediate && is_past_cache(run);
  run.is_within_call = false;
  XYLEM_CHECK(is_immediate || !program.is_exchange, program.algorithm);
  if (program.is_exchange) return post_rest(execution);
  if (!is_immediate) run.tickets.assign(program.steps.size() * program.window, {});
  renew_device_memory(execution);
  XYLEM_CHECK(!is_immediate || !run.device.gate.is_pending(), program.algorithm);
  run.steps.assign(program.steps.size(), StepState{});
  run.lanes.assign(program.lanes.size(), LaneState{});
  run.views.assign(program.view_count, HeldView{});
  run.steps_left = static_cast<std::uint32_t>(program.steps.size());
  if (run.device.gate.is_pending()) return await_gate(execution);
  queue_all(run);
  run_ready(execution);
}

/// The user may have freed and allocated device memory since the last call.
void Engine::renew_device_memory(const Execution& execution) noexcept {
  Compute* const compute = execution.run.device.compute;
  transport::DeviceMemory* const memory = compute == nullptr ? nullptr : compute->device_memory();
  if (memory != nullptr) memory->renew();
}

/// Lets all steps be looked at.
void Engine::queue_all(Run& run) {
  for (auto id = static_cast<StepId>(run.steps.size()); id-- > 0;) {
    run.ready.push_back(id);  // Steps are taken from the back, so in list order.
    run.steps[id].queued = true;
  }
}

Message& Engine::post_send(Execution& execution,
                           Link link,
                           transport::Tag tag,
                           transport::ConstRegion source) {
  Message& message = take_message(execution);
  message.transport = link.transport;
  message.views = link.views;
  message.endpoint = link.endpoint;
  message.step = kPointToPoint;
  message.incoming = false;
  if (source.memory.kind != MemoryKind::host) renew_device_memory(execution);
  // on_done() only notes the completion. It is handled in run(), so that a listener is never called
  // from within a post.
  if (link.transport->send(link.endpoint, tag, source, message) == Posted::done) on_done(message);
  return message;
}

Message& Engine::post_recv(Execution& execution,
                           Link link,
                           transport::Tag tag,
                           transport::Tag mask,
                           transport::Region target) {
  Message& message = take_message(execution);
  message.transport = link.transport;
  message.views = link.views;
  message.endpoint = link.endpoint;
  message.step = kPointToPoint;
  message.incoming = true;
  const Memory reader = execution.run.device.reader();
  const bool may_show = reader.kind != MemoryKind::host && link.views != nullptr;
  const Posted posted = may_show && mask == transport::kExactMatch
                            ? link.views->recv_view(tag, target, message, reader)
                            : link.transport->recv(tag, mask, target, message);
  if (posted == Posted::done) on_done(message);
  return message;
}

void Engine::completed(Message& message) {
  Execution& execution = *message.owner;
  const StepId id = message.step;
  const Code code = message.code;
  if (id == kPointToPoint) {
    if (code == Code::ok) {
      listener_.on_body(message);
    } else if (execution.health) {
      report(execution, collectives::kNone, code);
    }
    if (message.view.data != nullptr) message.views->release(message.view);
    drop_message(message);
    return end_if_idle(execution);
  }
  if (execution.run.program->is_exchange) {
    exchanged(message);
    return end_if_idle(execution);
  }
  const auto& step = execution.run.program->steps[id];
  const std::uint32_t slice = message.slice;
  const bool right_size = !message.incoming || step.bytes == 0 ||
                          message.bytes == execution.run.program->slice_size(step, slice);
  const bool is_well = execution.health && code == Code::ok && right_size;
  const bool shows = message.in_place && code == Code::ok && message.view.data != nullptr;
  const HeldView view{message.views, message.view, id, slice};
  drop_message(message);
  --execution.run.lanes[step.lane].in_flight;
  if (shows && (!is_well || execution.run.is_lost)) view.views->release(view.view);
  if (!execution.health || execution.run.is_lost) return end_if_idle(execution);
  if (!is_well) {
    const std::uint32_t peer = execution.run.program->lanes[step.lane].peer;
    return report(execution, peer, code == Code::ok ? Code::mismatch : code);
  }
  if (shows && view.view.is_on_device && step.target.view == kNone) {
    // The slice is done when the device has copied it.
    execution.run.unfetched.push_back(view);
    fetch(execution, id);
    return queue(execution, id);
  }
  if (shows) {
    take_slice(execution, id, slice, view);
  }
  if (execution.run.is_lost) return;
  slice_done(execution, id, slice);
  // The lane has room for another message now.
  queue(execution, id);
}

/// Reports a message that failed. If the device could not read it, the device is to blame.
void Engine::report(Execution& execution, std::uint32_t peer, Code code) {
  Compute* const compute = execution.run.device.compute;
  const Status device = compute == nullptr ? Status() : compute->health();
  if (code == Code::internal && !device) return listener_.on_compute_error(execution, device);
  listener_.on_wire_error(execution, peer, code);
}

void Engine::on_done(transport::Operation& done) noexcept {
  auto& message = static_cast<Message&>(done);
  message.completed_next = nullptr;
  *message.engine->completed_tail_ = &message;
  message.engine->completed_tail_ = &message.completed_next;
}

unsigned Engine::run_round() {
  const std::uint64_t before = moved_;
  while (completed_ != nullptr) {
    Message& message = *completed_;
    completed_ = message.completed_next;
    if (completed_ == nullptr) completed_tail_ = &completed_;
    Execution& execution = *message.owner;
    execution.acquire();  // completed() may end the execution.
    completed(message);
    const bool has_ready = !execution.run.ready.empty() && !execution.is_busy;
    if (has_ready && !execution.has_ended) run_ready(execution);
    execution.release();
  }
  round_.swap(busy_);
  for (Execution* execution : round_) {
    execution->is_busy = false;
    if (!execution->has_ended) run_ready(*execution);
    execution->release();
  }
  round_.clear();
  if (pending_count_ > 0) look_at_work();
  look_at_views();
  return static_cast<unsigned>(moved_ - before);
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
  if (pending_count_ > 0) cancel_work(execution);
  end_if_idle(execution);
  execution.release();
}

void Engine::end_if_idle(Execution& execution) {
  if (execution.outstanding > 0 || execution.has_ended) return;
  const bool is_over = execution.run.steps_left == 0 && !execution.run.is_lost;
  if (!execution.health || is_over) finish(execution, execution.health);
}

void Engine::finish(Execution& execution, Status outcome) {
  if (execution.run.views_held > 0) {
    for (HeldView& held : execution.run.views) {
      // If the device has not finished in time, work_ended() releases what it reads.
      if (!held.is_read && !held.is_put_away) release(execution, held);
    }
    for (HeldView& held : execution.run.arrived) release(execution, held);
  }
  execution.run.arrived.clear();
  for (const HeldView& view : execution.run.unfetched) view.views->release(view.view);
  execution.run.unfetched.clear();
  deactivate(execution);
  execution.has_ended = true;
  OnDevice& device = execution.run.device;
  // A message that arrived before its receive's gate opened, if the receive has failed since.
  if (device.copy.view.views != nullptr) device.copy.view.views->release(device.copy.view.view);
  device.copy = {};
  forget_gate(device);
  if (device.end.is_pending()) device.compute->open(device.end);
  listener_.on_ended(execution, std::move(outcome));
}

Message& Engine::take_message(Execution& execution) {
  if (free_messages_ == nullptr) {
    auto block = std::make_unique<Message[]>(kMessageBlock);
    for (std::size_t i = 0; i < kMessageBlock; ++i) {
      block[i].next = free_messages_;
      free_messages_ = &block[i];
    }
    message_blocks_.push_back(std::move(block));
  }
  Message& message = *std::exchange(free_messages_, free_messages_->next);
  message.done = &Engine::on_done;
  message.code = Code::ok;
  message.bytes = 0;
  message.view = {};
  message.state = nullptr;
  message.in_place = false;
  message.engine = this;
  message.owner = &execution;
  message.previous = nullptr;
  message.next = execution.messages;
  if (execution.messages != nullptr) execution.messages->previous = &message;
  execution.messages = &message;
  ++execution.outstanding;
  return message;
}

void Engine::drop_message(Message& message) noexcept {
  Execution& execution = *message.owner;
  if (message.previous != nullptr) {
    message.previous->next = message.next;
  } else {
    execution.messages = message.next;
  }
  if (message.next != nullptr) message.next->previous = message.previous;
  --execution.outstanding;
  message.next = free_messages_;
  free_messages_ = &message;
}

}  // namespace xylem::execution
