// SPDX-License-Identifier: Apache-2.0
//
// Engine: exchanges, the short way for small calls. Their programs (Program::is_exchange) have one
// slice in each step, at most one message to and from each peer, and messages that wait for no
// computation. So all messages are posted at once, and when the last has ended the local steps
// follow: no states of steps, no rounds. What moves where is the same.
#include "engine.h"
#include "group.h"
#include "xylem/base/check.h"

namespace xylem::runtime {

using collectives::kNone;
using transport::View;

void Engine::start_exchange(Operation& operation) {
  auto& run = operation.run;
  const auto& program = *run.program;
  run.steps_left = 1;
  run.ready.clear();
  run.later.clear();
  expected_.clear();
  // While it is not known whether more will be posted, none is the last.
  run.under_way = 1;
  for (const StepId id : program.lane_steps) {
    const ProgramStep& step = program.steps[id];
    if (!moves_bytes(step)) continue;
    ++run.under_way;
    const Lane& lane = program.lanes[step.lane];
    const Link& link = operation.group->link(lane.peer);
    if (!lane.outgoing && link.view_bytes >= program.slice_bytes) {
      expected_.push_back({id, tag_of(operation, step, 0), link});
    } else if (lane.outgoing && link.inline_bytes > 0 && step.bytes <= link.inline_bytes) {
      send_inline(operation, id, link);
    } else {
      post_exchange(operation, id);
    }
  }
  take_expected(operation);
  for (const Expected& one : expected_) post_exchange(operation, one.id);
  if (--run.under_way == 0 && operation.health) finish_exchange(operation);
  end_if_idle(operation);
}

/// Sends what ends at once.
void Engine::send_inline(Operation& operation, StepId id, const Link& link) {
  if (!operation.health) return;
  const auto& run = operation.run;
  const ProgramStep& step = run.program->steps[id];
  const std::byte* data =
      step.bytes == 0 ? nullptr : place_of(run, run.program->sources[step.first_source], 0);
  transport::Operation sent;
  const auto posted =
      link.transport->send(link.endpoint, tag_of(operation, step, 0), {data, step.bytes, {}}, sent);
  XYLEM_CHECK(posted == transport::Posted::done, step.bytes, link.inline_bytes);
  took(operation, id, sent.code, step.bytes);
}

void Engine::post_exchange(Operation& operation, StepId id) {
  if (!operation.health) return;
  Message& message = take_message(operation);
  if (post_message(operation, id, 0, message)) exchanged(message);
}

/// Takes of the expected messages those that come at this moment.
void Engine::take_expected(Operation& operation) {
  if (expected_.empty()) return;
  const auto take = [&](const Expected& one) {
    if (!operation.health) return false;
    View view;
    std::uint64_t bytes = 0;
    if (!one.link.transport->take_view(one.link.endpoint, one.tag, view, bytes)) return false;
    hold(operation, {one.link.transport, view, one.id, 0});
    took(operation, one.id, Code::ok, bytes);
    return true;
  };
  std::uint32_t polls = patience_.polls();
  for (std::erase_if(expected_, take); !expected_.empty() && polls > 0; --polls) {
    relax();
    std::erase_if(expected_, take);
  }
  patience_.learn(expected_.empty());
}

/// A message of an exchange has ended.
void Engine::exchanged(Message& message) {
  Operation& operation = *message.owner;
  auto& run = operation.run;
  const auto& program = *run.program;
  const StepId id = message.step;
  const auto& step = program.steps[id];
  const Code code = message.code;
  const std::uint64_t bytes = message.incoming ? message.bytes : step.bytes;
  const HeldView view{message.transport, message.view, id, 0};
  const bool shows = message.in_place && code == Code::ok;
  drop_message(message);
  if (shows) hold(operation, view);
  took(operation, id, code, bytes);
  if (run.under_way == 0 && operation.health) finish_exchange(operation);
}

/// Counts a message that has ended.
void Engine::took(Operation& operation, StepId id, Code code, std::uint64_t bytes) {
  if (!operation.health) return;
  const auto& program = *operation.run.program;
  const auto& step = program.steps[id];
  if (code != Code::ok || bytes != step.bytes) {
    return listener_.on_wire_error(operation, program.lanes[step.lane].peer,
                                   code == Code::ok ? Code::mismatch : code);
  }
  ++operation.advanced;
  --operation.run.under_way;
}

void Engine::hold(Operation& operation, const HeldView& view) {
  operation.run.arrived.push_back(view);
  ++operation.run.views_held;
  ++views_held_;
  ++views_touched_;
}

void Engine::finish_exchange(Operation& operation) {
  auto& run = operation.run;
  const auto& program = *run.program;
  if (run.views.size() < program.view_count) run.views.resize(program.view_count);
  for (const HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (arrived.transport == nullptr) continue;  // It is in its place already.
    if (step.target.view == kNone) {
      bring(run, step, 0, arrived.view.data);
    } else {
      run.views[step.target.view] = arrived;
    }
  }
  for (const StepId id : program.local_steps) {
    const ProgramStep& step = program.steps[id];
    if (step.bytes > 0) compute(operation, step, 0, place_of(run, step.target, 0));
  }
  for (HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (step.target.view != kNone) run.views[step.target.view].transport = nullptr;
    release(operation, arrived);
  }
  run.arrived.clear();
  ++moved_;
  run.steps_left = 0;
}

}  // namespace xylem::runtime
