// SPDX-License-Identifier: Apache-2.0
//
// Engine: exchanges, the short way for small calls. Their programs (Program::is_exchange) have one
// slice in each step, at most one message to and from each peer, and messages that wait for no
// computation. So all messages are posted at once, and when the last has ended the local steps
// follow: no states of steps, no rounds. What moves where is the same.
#include "engine.h"
#include "group.h"

namespace xylem::runtime {

using collectives::kNone;

void Engine::start_exchange(Operation& operation) {
  auto& run = operation.run;
  const auto& program = *run.program;
  run.steps_left = 1;
  run.arrived.clear();
  // While it is not known whether more will be posted, none is the last.
  run.under_way = 1;
  for (const StepId id : program.lane_steps) {
    if (!operation.health) break;
    if (!moves_bytes(program.steps[id])) continue;
    ++run.under_way;
    Message& message = take_message(operation);
    if (post_message(operation, id, 0, message)) exchanged(message);
  }
  if (--run.under_way == 0 && operation.health) finish_exchange(operation);
  end_if_idle(operation);
}

/// A message of an exchange has ended.
void Engine::exchanged(Message& message) {
  Operation& operation = *message.owner;
  auto& run = operation.run;
  const auto& program = *run.program;
  const StepId id = message.step;
  const auto& step = program.steps[id];
  const Code code = message.code;
  const bool right_size = !message.incoming || step.bytes == 0 || message.bytes == step.bytes;
  const HeldView view{message.transport, message.view, id, 0};
  const bool shows = message.in_place && code == Code::ok;
  drop_message(message);
  if (shows) run.arrived.push_back(view);
  if (!operation.health) return;
  if (code != Code::ok || !right_size) {
    return listener_.on_wire_error(operation, program.lanes[step.lane].peer,
                                   code == Code::ok ? Code::mismatch : code);
  }
  ++operation.advanced;
  if (--run.under_way == 0) finish_exchange(operation);
}

void Engine::finish_exchange(Operation& operation) {
  auto& run = operation.run;
  const auto& program = *run.program;
  if (run.views.size() < program.view_count) run.views.resize(program.view_count);
  for (HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (step.target.view == kNone) {
      bring(run, step, 0, arrived.view.data);
      continue;
    }
    run.views[step.target.view] = arrived;
  }
  for (const StepId id : program.local_steps) {
    const ProgramStep& step = program.steps[id];
    if (step.bytes > 0) compute(operation, step, 0, place_of(run, step.target, 0));
  }
  for (HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (step.target.view != kNone) run.views[step.target.view].transport = nullptr;
    arrived.transport->release(arrived.view);
  }
  run.arrived.clear();
  ++moved_;
  run.steps_left = 0;
}

}  // namespace xylem::runtime
