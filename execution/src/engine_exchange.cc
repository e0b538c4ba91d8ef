// SPDX-License-Identifier: Apache-2.0
//
// Engine: exchanges, the short way for small calls. The programs of exchanges
// (Program::is_exchange) have one slice in each step, at most one message to and from each peer,
// and messages that wait for no computation. So all messages are issued at once, and the local
// steps run when the last message has ended. This needs no states of steps and no rounds, and moves
// the same bytes.
//
// If all ranks share memory and call at the same time, the exchange ends within the call:
//
//   try_start() ──► all has come: the execution has ended
//        └──► something has not: start() posts the rest
#include "xylem/base/check.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/tag.h"
#include "xylem/execution/trace.h"

#include <algorithm>
#include <cstring>

namespace xylem::execution {

using collectives::kNone;
using transport::Room;
using transport::View;

std::optional<Exchange> Exchange::of(const Program& program,
                                     std::uint32_t rank,
                                     std::span<const transport::Tag> groups) {
  if (!program.is_exchange) return std::nullopt;
  Exchange exchange;
  std::uint32_t last_cast = kNone;
  for (const StepId id : program.lane_steps) {
    const ProgramStep& step = program.steps[id];
    if (!step.is_message()) continue;
    const Lane& lane = program.lanes[step.lane];
    const auto [source, target] = lane.ends(rank);
    const Message message{id, 0, message_tag(groups[target], source, lane.number, step.ordinal),
                          step.bytes};
    if (!lane.outgoing) {
      exchange.receives.push_back(message);
      continue;
    }
    // No send waits for anything, so all sends of a cast send the same bytes and can go together.
    if (step.cast == kNone || step.cast != last_cast) {
      exchange.casts.push_back({static_cast<std::uint32_t>(exchange.sends.size()), 0});
    }
    last_cast = step.cast;
    ++exchange.casts.back().count;
    exchange.sends.push_back(message);
  }
  exchange.endpoints.resize(exchange.sends.size());
  exchange.program = &program;
  return exchange;
}

bool Exchange::connect(const Peers& peers) noexcept {
  const auto reach = [&](Message& message) {
    const ProgramStep& step = program->steps[message.step];
    const Link& link = peers.links[program->lanes[step.lane].peer];
    if (transport == nullptr) transport = link.transport;
    views = link.views;
    inline_bytes = link.inline_bytes;
    message.endpoint = link.endpoint;
    return link.transport == transport && link.view_bytes > 0 && link.view_bytes >= message.bytes;
  };
  if (!std::ranges::all_of(receives, reach) || !std::ranges::all_of(sends, reach)) return false;
  std::ranges::transform(sends, endpoints.begin(), &Message::endpoint);
  return true;
}

// ---- within the call ----

bool Engine::try_start(Execution& execution, const Exchange& exchange) {
  Run& run = execution.run;
  run.past_cache = is_past_cache(run);
  run.is_within_call = true;
  if (!send_now(execution, exchange) || !receive_now(execution, exchange)) {
    run.views_held = static_cast<std::uint32_t>(run.arrived.size());
    views_held_ += run.views_held;
    ++views_touched_;
    return false;
  }
  const StepId lost = finish_exchange(run);
  // Messages taken within a call are in slots, so their senders cannot withdraw them.
  XYLEM_CHECK(lost == kNone, lost);
  // The other fields are as new, or start() and the caller set them again for the next call.
  run.sent = 0;
  return true;
}

/// Sends messages as long as there is room. True if all of them were sent.
bool Engine::send_now(Execution& execution, const Exchange& exchange) {
  Run& run = execution.run;
  for (const Exchange::Cast& cast : exchange.casts) {
    const Exchange::Message& first = exchange.sends[cast.first];
    const ProgramStep& step = run.program->steps[first.step];
    const std::byte* data =
        step.bytes == 0 ? nullptr : place_of(run, run.program->sources[step.first_source], 0);
    const bool is_inline = step.bytes <= exchange.inline_bytes;
    if (!is_inline) {
      transport::Reservation slot;
      const auto peers = std::span(exchange.endpoints).subspan(cast.first, cast.count);
      if (exchange.views->reserve(peers, step.bytes, slot) != Room::given) return false;
      exchange.views->fill(data, {});
    }
    for (std::uint32_t i = cast.first; i < cast.first + cast.count; ++i) {
      const Exchange::Message& message = exchange.sends[i];
      const auto tag =
          collective_tag(message.tag, execution.sequence, execution.fingerprint, message.bytes);
      if (!is_inline) {
        exchange.views->commit(message.endpoint, tag);
      } else if (!exchange.transport->send_inline(message.endpoint, tag, data, message.bytes)) {
        return false;
      }
      ++run.sent;
    }
  }
  return true;
}

/// Receives the messages that arrive while this thread polls. True if all of them arrived.
bool Engine::receive_now(Execution& execution, const Exchange& exchange) {
  Run& run = execution.run;
  const auto take = [&](const Exchange::Message* message) {
    View view;
    const auto tag =
        collective_tag(message->tag, execution.sequence, execution.fingerprint, message->bytes);
    if (!exchange.views->take_view(message->endpoint, tag, message->bytes, view)) return false;
    trace(run, run.program->steps[message->step], 0, Traced::received, 0, view.data);
    run.arrived.push_back({exchange.views, view, message->step, 0});
    return true;
  };
  expected_.clear();
  for (const Exchange::Message& message : exchange.receives) {
    if (!take(&message)) expected_.push_back(&message);
  }
  if (expected_.empty()) return true;
  return patience_.await([&] {
    std::erase_if(expected_, take);
    return expected_.empty();
  });
}

// ---- as an execution under way ----

/// Posts the messages that have not been sent or received yet.
void Engine::post_rest(Execution& execution) {
  auto& run = execution.run;
  const auto& program = *run.program;
  run.steps_left = 1;
  // The extra 1 prevents a message from being taken for the last while others are still to be
  // posted.
  run.under_way = 1;
  std::uint32_t sends = 0;
  for (const StepId id : program.lane_steps) {
    const ProgramStep& step = program.steps[id];
    if (!step.is_message()) continue;
    const bool has_moved =
        program.lanes[step.lane].outgoing
            ? sends++ < run.sent
            : std::ranges::find(run.arrived, id, &HeldView::step) != run.arrived.end();
    if (has_moved) continue;
    ++run.under_way;
    post_one(execution, id);
  }
  --run.under_way;
  finish_if_last(execution);
  end_if_idle(execution);
}

void Engine::post_one(Execution& execution, StepId id) {
  if (!execution.health) return;
  Message& message = take_message(execution);
  if (post_message(execution, id, 0, message)) exchanged(message);
}

/// A message of an exchange has ended.
void Engine::exchanged(Message& message) {
  Execution& execution = *message.owner;
  auto& run = execution.run;
  const auto& program = *run.program;
  const StepId id = message.step;
  const auto& step = program.steps[id];
  const Code code = message.code;
  const std::uint64_t bytes = message.incoming ? message.bytes : step.bytes;
  const HeldView view{message.views, message.view, id, 0};
  const bool shows = message.in_place && code == Code::ok && message.view.data != nullptr;
  drop_message(message);
  if (shows) {
    trace(run, step, 0, Traced::received, 0, view.view.data);
    run.arrived.push_back(view);
    ++run.views_held;
    ++views_held_;
    ++views_touched_;
  }
  took(execution, id, code, bytes);
  finish_if_last(execution);
}

void Engine::finish_if_last(Execution& execution) {
  if (execution.run.under_way > 0 || !execution.health) return;
  const StepId lost = finish_exchange(execution.run);
  if (lost != kNone) lose_view(execution, lost);
}

/// Counts a message that has ended.
void Engine::took(Execution& execution, StepId id, Code code, std::uint64_t bytes) {
  if (!execution.health) return;
  const auto& program = *execution.run.program;
  const auto& step = program.steps[id];
  if (code != Code::ok || bytes != step.bytes) {
    return listener_.on_wire_error(execution, program.lanes[step.lane].peer,
                                   code == Code::ok ? Code::mismatch : code);
  }
  ++execution.advanced;
  --execution.run.under_way;
}

// ---- both ----

/// Copies messages that have arrived to their places and runs the local steps. If a sender has
/// withdrawn a message, returns its step, and otherwise kNone.
StepId Engine::finish_exchange(Run& run) {
  const auto& program = *run.program;
  if (run.views.size() < program.view_count) run.views.resize(program.view_count);
  for (const HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (arrived.views == nullptr) continue;  // The message is in its place already.
    if (step.target.view == kNone) {
      bring(run, step, 0, arrived.view.data);
    } else {
      run.views[step.target.view] = arrived;
    }
  }
  for (const StepId id : program.local_steps) {
    const ProgramStep& step = program.steps[id];
    if (step.bytes == 0) continue;
    HostCompute::run(work_of(run, step, {0}, place_of(run, step.target, 0)));
    trace(run, step, 0, Traced::result, 0, place_of(run, step.target, 0));
  }
  StepId lost = kNone;
  for (const HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (step.target.view != kNone) run.views[step.target.view].views = nullptr;
    if (arrived.views != nullptr && !arrived.views->release(arrived.view)) {
      lost = arrived.step;
    }
  }
  run.arrived.clear();
  views_held_ -= run.views_held;
  views_touched_ += run.views_held;
  run.views_held = 0;
  run.steps_left = 0;
  ++moved_;
  return lost;
}

}  // namespace xylem::execution
