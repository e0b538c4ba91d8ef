// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/exchange.h"

#include "slices.h"
#include "xylem/base/check.h"
#include "xylem/execution/host_compute.h"
#include "xylem/execution/tag.h"
#include "xylem/execution/trace.h"

#include <algorithm>

namespace xylem::execution {

using collectives::kNone;
using transport::ReserveResult;
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
    // In an exchange, no send waits for another step. So all sends of a cast can be issued
    // together, and they send the same bytes.
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
    const Link& link = peers.link(program->lanes[step.lane]);
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

namespace {

/// Copies the messages that have arrived to their places, and runs the local steps.
void compute(Run& run) {
  const auto& program = *run.program;
  if (run.views.size() < program.view_count) run.views.resize(program.view_count);
  for (const HeldView& arrived : run.arrived) {
    const ProgramStep& step = program.steps[arrived.step];
    if (arrived.views == nullptr) continue;  // The message is in its place already.
    if (step.target.view == kNone) {
      copy_to_target(run, step, 0, arrived.view.data);
    } else {
      run.views[step.target.view] = arrived;
    }
  }
  for (const StepId id : program.local_steps) {
    const ProgramStep& step = program.steps[id];
    if (step.bytes == 0) continue;
    std::byte* const target = run.address_of(step.target, 0);
    compute_on_host(work_of(run, step, {0}, target));
    trace(run, step, 0, Traced::result, 0, target);
  }
}

/// Calls `end` with the view of each message that has arrived. `end` releases the view, and returns
/// false if the sender has withdrawn the message. Returns the step of a withdrawn message, or
/// kNone.
template <typename End>
StepId end_views(Run& run, const End& end) {
  StepId withdrawn = kNone;
  for (HeldView& arrived : run.arrived) {
    const ProgramStep& step = run.program->steps[arrived.step];
    if (step.target.view != kNone) run.views[step.target.view].views = nullptr;
    if (!end(arrived)) withdrawn = arrived.step;
  }
  run.arrived.clear();
  return withdrawn;
}

}  // namespace

// ---- within the call ----

bool ExchangeRunner::try_start(Execution& execution, const Exchange& exchange) {
  Run& run = execution.run;
  run.is_within_call = true;
  if (!send_now(execution, exchange) || !receive_now(execution, exchange)) {
    run.is_within_call = false;
    for (const HeldView& arrived : run.arrived) views_.add(run, arrived);
    return false;
  }
  compute(run);
  const StepId withdrawn =
      end_views(run, [](HeldView& held) { return held.views->release(held.view); });
  // Messages that are received within the call are in slots, so their senders cannot withdraw them.
  XYLEM_CHECK(withdrawn == kNone, withdrawn);
  static_cast<RunState&>(run) = RunState{};
  return true;
}

/// Sends messages as long as slots are free. True if all messages have been sent.
bool ExchangeRunner::send_now(Execution& execution, const Exchange& exchange) {
  Run& run = execution.run;
  for (const Exchange::Cast& cast : exchange.casts) {
    const Exchange::Message& first = exchange.sends[cast.first];
    const ProgramStep& step = run.program->steps[first.step];
    const std::byte* data =
        step.bytes == 0 ? nullptr : run.address_of(run.program->source_of(step), 0);
    const bool is_inline = step.bytes <= exchange.inline_bytes;
    if (!is_inline) {
      transport::Reservation slot;
      const auto peers = std::span(exchange.endpoints).subspan(cast.first, cast.count);
      if (exchange.views->reserve(peers, step.bytes, slot) != ReserveResult::reserved) return false;
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

/// Receives the messages that arrive while this thread polls. True if all messages have arrived.
bool ExchangeRunner::receive_now(Execution& execution, const Exchange& exchange) {
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
  return poll_budget_.await([&] {
    std::erase_if(expected_, take);
    return expected_.empty();
  });
}

// ---- as an execution under way ----

void ExchangeRunner::post_rest(Execution& execution) {
  auto& run = execution.run;
  const auto& program = *run.program;
  // The extra 1 keeps the count above 0 until all messages have been posted, so that no message is
  // taken for the last one too early.
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
    if (!execution.health) continue;
    if (Message* const message = post(messages_, execution, id, 0)) on_message(*message);
  }
  --run.under_way;
  complete_if_last(execution);
}

void ExchangeRunner::on_message(Message& message) {
  Execution& execution = *message.owner;
  auto& run = execution.run;
  const StepId id = message.step;
  const auto& step = run.program->steps[id];
  const Code code = message.code;
  const std::uint64_t bytes = message.incoming ? message.bytes : step.bytes;
  const HeldView view{message.views, message.view, id, 0};
  const bool shows = message.in_place && code == Code::ok && message.view.data != nullptr;
  messages_.release(message);
  if (shows) {
    trace(run, step, 0, Traced::received, 0, view.view.data);
    run.arrived.push_back(view);
    views_.add(run, view);
  }
  count(execution, id, code, bytes);
  complete_if_last(execution);
}

/// Counts a message that has ended. Reports it to the listener if it has failed.
void ExchangeRunner::count(Execution& execution, StepId id, Code code, std::uint64_t bytes) {
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

void ExchangeRunner::complete_if_last(Execution& execution) {
  Run& run = execution.run;
  if (run.under_way > 0 || !execution.health) return;
  compute(run);
  const StepId withdrawn = end_views(run, [&](HeldView& held) { return views_.end(run, held); });
  run.steps_left = 0;
  if (withdrawn != kNone) views_.on_withdrawn(execution, withdrawn);
}

}  // namespace xylem::execution
