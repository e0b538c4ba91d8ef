// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include "group.h"
#include "tag.h"
#include "xylem/base/check.h"

#include <utility>

namespace xylem::runtime {

using transport::Posted;

namespace {

constexpr std::size_t kMessageBlock = 64;

}  // namespace

bool Engine::is_past_cache(const Execution& run) const noexcept {
  const auto* input = run.base[static_cast<int>(collectives::Buffer::input)];
  const auto* output = run.base[static_cast<int>(collectives::Buffer::output)];
  // What is written over what has just been read is in the cache already.
  const bool is_over_input =
      input <= output && output + run.program->output_bytes <= input + run.program->input_bytes;
  return run.program->output_bytes >= past_cache_from_ && !is_over_input;
}

void Engine::activate(Operation& operation) noexcept {
  operation.active_previous = nullptr;
  operation.active_next = active_;
  if (active_ != nullptr) active_->active_previous = &operation;
  active_ = &operation;
}

void Engine::deactivate(Operation& operation) noexcept {
  if (operation.active_previous != nullptr) {
    operation.active_previous->active_next = operation.active_next;
  } else {
    active_ = operation.active_next;
  }
  if (operation.active_next != nullptr) {
    operation.active_next->active_previous = operation.active_previous;
  }
  operation.active_previous = operation.active_next = nullptr;
}

void Engine::start(Operation& operation) {
  auto& run = operation.run;
  const auto& program = *run.program;
  run.past_cache = is_past_cache(run);
  if (program.is_exchange) return post_rest(operation);
  run.steps.assign(program.steps.size(), StepState{});
  run.lanes.assign(program.lanes.size(), LaneState{});
  run.views.assign(program.view_count, HeldView{});
  run.steps_left = static_cast<std::uint32_t>(program.steps.size());
  for (auto id = static_cast<StepId>(program.steps.size()); id-- > 0;) {
    run.ready.push_back(id);  // popped from the back: in list order
    run.steps[id].queued = true;
  }
  run_ready(operation);
}

Message& Engine::post_send(Operation& operation,
                           Link link,
                           transport::Tag tag,
                           transport::ConstRegion source) {
  Message& message = take_message(operation);
  message.transport = link.transport;
  message.endpoint = link.endpoint;
  message.step = kPointToPoint;
  message.incoming = false;
  // Completions are handled after the caller has returned to its own state: never from within a
  // post.
  if (link.transport->send(link.endpoint, tag, source, message) == Posted::done) on_done(message);
  return message;
}

Message& Engine::post_recv(Operation& operation,
                           Link link,
                           transport::Tag tag,
                           transport::Tag mask,
                           transport::Region target) {
  Message& message = take_message(operation);
  message.transport = link.transport;
  message.endpoint = link.endpoint;
  message.step = kPointToPoint;
  message.incoming = true;
  if (link.transport->recv(tag, mask, target, message) == Posted::done) on_done(message);
  return message;
}

void Engine::completed(Message& message) {
  Operation& operation = *message.owner;
  const StepId id = message.step;
  const Code code = message.code;
  if (id == kPointToPoint) {
    if (code == Code::ok) {
      listener_.on_body(message);
    } else if (operation.health) {
      listener_.on_wire_error(operation, operation.call.peer, code);
    }
    drop_message(message);
    return end_if_idle(operation);
  }
  if (operation.run.program->is_exchange) {
    exchanged(message);
    return end_if_idle(operation);
  }
  const auto& step = operation.run.program->steps[id];
  const std::uint32_t slice = message.slice;
  const bool right_size = !message.incoming || step.bytes == 0 ||
                          message.bytes == operation.run.program->slice_size(step, slice);
  const bool is_well = operation.health && code == Code::ok && right_size;
  const bool shows = message.in_place && code == Code::ok && message.view.data != nullptr;
  const HeldView view{message.transport, message.view, id, slice};
  drop_message(message);
  --operation.run.lanes[step.lane].in_flight;
  if (shows && (!is_well || operation.run.is_lost)) view.transport->release(view.view);
  if (!operation.health || operation.run.is_lost) return end_if_idle(operation);
  if (!is_well) {
    const std::uint32_t peer = operation.run.program->lanes[step.lane].peer;
    return listener_.on_wire_error(operation, peer, code == Code::ok ? Code::mismatch : code);
  }
  if (shows) take_slice(operation, id, slice, view);
  if (operation.run.is_lost) return;
  slice_done(operation, id, slice);
  // The lane has room again: its head may go on.
  queue(operation, id);
}

void Engine::on_done(transport::Operation& done) noexcept {
  auto& message = static_cast<Message&>(done);
  message.completed_next = nullptr;
  *message.engine->completed_tail_ = &message;
  message.engine->completed_tail_ = &message.completed_next;
}

unsigned Engine::run() {
  const std::uint64_t before = moved_;
  while (completed_ != nullptr) {
    Message& message = *completed_;
    completed_ = message.completed_next;
    if (completed_ == nullptr) completed_tail_ = &completed_;
    Operation& operation = *message.owner;
    operation.acquire();  // It may end within.
    completed(message);
    const bool has_ready = !operation.run.ready.empty() && !operation.is_busy;
    if (has_ready && !operation.ended()) run_ready(operation);
    operation.release();
  }
  round_.swap(busy_);
  for (Operation* operation : round_) {
    operation->is_busy = false;
    if (!operation->ended()) run_ready(*operation);
    operation->release();
  }
  round_.clear();
  look_at_views();
  return static_cast<unsigned>(moved_ - before);
}

void Engine::fail(Operation& operation, Status why) {
  if (!operation.health || operation.ended()) return;
  operation.health = std::move(why);
  operation.failed_at = Clock::now();
  operation.run.ready.clear();
  operation.run.later.clear();
  operation.acquire();
  for (Message* message = operation.messages; message != nullptr;) {
    Message* next = message->next;
    message->transport->cancel(*message);
    message = next;
  }
  end_if_idle(operation);
  operation.release();
}

void Engine::end_if_idle(Operation& operation) {
  if (operation.outstanding > 0 || operation.ended()) return;
  const bool is_over = operation.run.steps_left == 0 && !operation.run.is_lost;
  if (!operation.health || is_over) finish(operation, operation.health);
}

void Engine::finish(Operation& operation, Status outcome) {
  if (operation.run.views_held > 0) {
    for (HeldView& held : operation.run.views) release(operation, held);
    for (HeldView& held : operation.run.arrived) release(operation, held);
  }
  operation.run.arrived.clear();
  deactivate(operation);
  listener_.on_ended(operation, std::move(outcome));
}

Message& Engine::take_message(Operation& operation) {
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
  message.owner = &operation;
  message.previous = nullptr;
  message.next = operation.messages;
  if (operation.messages != nullptr) operation.messages->previous = &message;
  operation.messages = &message;
  ++operation.outstanding;
  return message;
}

void Engine::drop_message(Message& message) noexcept {
  Operation& operation = *message.owner;
  if (message.previous != nullptr) {
    message.previous->next = message.next;
  } else {
    operation.messages = message.next;
  }
  if (message.next != nullptr) message.next->previous = message.previous;
  --operation.outstanding;
  message.next = free_messages_;
  free_messages_ = &message;
}

}  // namespace xylem::runtime
