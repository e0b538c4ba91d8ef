// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include "group.h"
#include "tag.h"
#include "xylem/base/check.h"

#include <bit>
#include <cstring>
#include <utility>

namespace xylem::runtime {

using collectives::EdgeKind;
using collectives::kNone;
using collectives::StepKind;
using transport::Posted;

namespace {

constexpr std::size_t kMessageBlock = 64;

/// How many slices of a step may be issued by now.
std::uint32_t ready_slices(const Execution& run, const ProgramStep& step) noexcept {
  std::uint32_t ready = step.slices;
  for (std::uint32_t e = step.first_edge; e < step.first_edge + step.edge_count; ++e) {
    const auto& edge = run.program->edges[e];
    const std::uint32_t done = run.steps[edge.before].completed;
    std::uint32_t limit = done;
    if (edge.kind == EdgeKind::whole) {
      limit = done == run.program->steps[edge.before].slices ? step.slices : 0;
    } else if (edge.kind == EdgeKind::lag) {
      limit = done + run.program->window;
    }
    ready = std::min(ready, limit);
  }
  return ready;
}

bool moves_bytes(const ProgramStep& step) noexcept {
  return step.bytes > 0 || step.kind == StepKind::signal || step.kind == StepKind::wait;
}

}  // namespace

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
  run.steps.assign(program.steps.size(), StepState{});
  run.lanes.assign(program.lanes.size(), LaneState{});
  run.ready.clear();
  run.steps_left = static_cast<std::uint32_t>(program.steps.size());
  for (auto id = static_cast<StepId>(program.steps.size()); id-- > 0;) {
    run.ready.push_back(id);  // popped from the back: in list order
    run.steps[id].queued = true;
  }
  run_ready(operation);
}

void Engine::run_ready(Operation& operation) {
  auto& ready = operation.run.ready;
  while (!ready.empty() && operation.health) {
    const StepId id = ready.back();
    ready.pop_back();
    operation.run.steps[id].queued = false;
    advance(operation, id);
  }
  end_if_idle(operation);
}

void Engine::advance(Operation& operation, StepId id) {
  auto& run = operation.run;
  const auto& step = run.program->steps[id];
  if (step.lane != kNone) return pump(operation, step.lane);
  auto& state = run.steps[id];
  for (const std::uint32_t limit = ready_slices(run, step); state.issued < limit;) {
    const std::uint32_t slice = state.issued++;
    run_local(operation, step, slice);
    slice_done(operation, id, slice);
  }
}

void Engine::pump(Operation& operation, std::uint32_t lane_index) {
  auto& run = operation.run;
  const auto& program = *run.program;
  const auto& lane = program.lanes[lane_index];
  auto& state = run.lanes[lane_index];
  while (state.head < lane.step_count && operation.health) {
    const StepId id = program.lane_steps[lane.first_step + state.head];
    const auto& step = program.steps[id];
    auto& progress = run.steps[id];
    const std::uint32_t limit = ready_slices(run, step);
    // `ahead` has kMaxWindow bits: no slice is issued further than that beyond the oldest that is
    // under way.
    while (progress.issued < limit && state.in_flight < program.window &&
           progress.issued - progress.completed < kMaxWindow && operation.health) {
      post(operation, id, progress.issued++);
    }
    if (progress.issued < step.slices) return;
    ++state.head;
  }
}

void Engine::post(Operation& operation, StepId id, std::uint32_t slice) {
  auto& run = operation.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  if (!moves_bytes(step)) return slice_done(operation, id, slice);
  const auto& lane = program.lanes[step.lane];
  Group& group = *operation.group;
  const Link link = group.link(lane.peer);
  const std::uint32_t source = lane.outgoing ? group.rank() : lane.peer;
  const transport::Tag tag =
      collective_tag(group.slot(), source, operation.sequence, lane.number, step.ordinal + slice,
                     operation.fingerprint, step.bytes);
  const std::uint64_t bytes = step.bytes == 0 ? 0 : program.slice_size(step, slice);
  Message& message = take_message(operation);
  message.transport = link.transport;
  message.endpoint = link.endpoint;
  message.step = id;
  message.slice = slice;
  message.incoming = !lane.outgoing;
  Posted posted;
  if (lane.outgoing) {
    const Place* place = step.source_count > 0 ? &program.sources[step.first_source] : nullptr;
    const std::byte* data = place == nullptr ? nullptr
                                             : run.base[static_cast<int>(place->buffer)] +
                                                   program.slice_offset(*place, slice);
    posted = link.transport->send(link.endpoint, tag, {data, bytes, {}}, message);
  } else {
    std::byte* data = bytes == 0 ? nullptr
                                 : run.base[static_cast<int>(step.target.buffer)] +
                                       program.slice_offset(step.target, slice);
    posted = link.transport->recv(tag, transport::kExactMatch, {data, bytes, {}}, message);
  }
  ++run.lanes[step.lane].in_flight;
  if (posted == Posted::done) completed(message);
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

void Engine::run_local(Operation& operation, const ProgramStep& step, std::uint32_t slice) {
  if (step.bytes == 0) return;
  auto& run = operation.run;
  const auto& program = *run.program;
  const std::uint64_t bytes = program.slice_size(step, slice);
  const auto address = [&](const Place& place) {
    return run.base[static_cast<int>(place.buffer)] + program.slice_offset(place, slice);
  };
  std::byte* target = address(step.target);
  const Place* sources = &program.sources[step.first_source];
  if (step.kind == StepKind::copy) {
    const std::byte* source = address(sources[0]);
    if (source != target) std::memcpy(target, source, bytes);
    return;
  }
  run.sources.resize(step.source_count);
  for (std::uint32_t i = 0; i < step.source_count; ++i) run.sources[i] = address(sources[i]);
  program.kernel(target, run.sources.data(), step.source_count, bytes / program.element_bytes,
                 {step.finish ? program.divisor : 1});
}

void Engine::slice_done(Operation& operation, StepId id, std::uint32_t slice) {
  auto& run = operation.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  auto& state = run.steps[id];
  state.ahead |= std::uint64_t{1} << (slice - state.completed);
  const auto run_length = static_cast<std::uint32_t>(std::countr_one(state.ahead));
  if (run_length == 0) return;
  state.completed += run_length;
  state.ahead = run_length == 64 ? 0 : state.ahead >> run_length;
  ++operation.advanced;
  if (state.completed == step.slices) --run.steps_left;
  for (std::uint32_t s = 0; s < step.successor_count; ++s) {
    const StepId next = program.successors[step.first_successor + s];
    auto& next_state = run.steps[next];
    if (!next_state.queued && next_state.issued < program.steps[next].slices) {
      next_state.queued = true;
      run.ready.push_back(next);
    }
  }
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
  const auto& step = operation.run.program->steps[id];
  const std::uint32_t slice = message.slice;
  const bool right_size = !message.incoming || step.bytes == 0 ||
                          message.bytes == operation.run.program->slice_size(step, slice);
  drop_message(message);
  --operation.run.lanes[step.lane].in_flight;
  if (!operation.health) return end_if_idle(operation);
  if (code != Code::ok || !right_size) {
    const std::uint32_t peer = operation.run.program->lanes[step.lane].peer;
    return listener_.on_wire_error(operation, peer, code == Code::ok ? Code::mismatch : code);
  }
  slice_done(operation, id, slice);
  if (!operation.run.steps[id].queued) {
    // The lane has room again: its head may go on.
    operation.run.steps[id].queued = true;
    operation.run.ready.push_back(id);
  }
}

void Engine::on_done(transport::Operation& done) noexcept {
  auto& message = static_cast<Message&>(done);
  message.completed_next = nullptr;
  *message.engine->completed_tail_ = &message;
  message.engine->completed_tail_ = &message.completed_next;
}

void Engine::run_completed() {
  while (completed_ != nullptr) {
    Message& message = *completed_;
    completed_ = message.completed_next;
    if (completed_ == nullptr) completed_tail_ = &completed_;
    Operation& operation = *message.owner;
    operation.acquire();  // It may end within.
    completed(message);
    if (!operation.run.ready.empty()) run_ready(operation);
    operation.release();
  }
}

void Engine::fail(Operation& operation, Status why) {
  if (!operation.health || operation.ended()) return;
  operation.health = std::move(why);
  operation.failed_at = Clock::now();
  operation.run.ready.clear();
  operation.acquire();
  for (Message* message = operation.messages; message != nullptr;) {
    Message* next = message->next;
    if (message->incoming) message->transport->cancel(*message);
    message = next;
  }
  end_if_idle(operation);
  operation.release();
}

void Engine::cut(Operation& operation) {
  for (Message* message = operation.messages; message != nullptr; message = message->next) {
    if (!message->incoming) message->transport->close(message->endpoint);
  }
}

void Engine::end_if_idle(Operation& operation) {
  if (operation.outstanding > 0 || operation.ended()) return;
  if (!operation.health || operation.run.steps_left == 0) finish(operation, operation.health);
}

void Engine::finish(Operation& operation, Status outcome) {
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
  message.state = nullptr;
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
