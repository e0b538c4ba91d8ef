// SPDX-License-Identifier: Apache-2.0
//
// Engine: which slice goes next, and how its bytes move.
#include "xylem/base/copy.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/tag.h"
#include "xylem/execution/trace.h"

#include <algorithm>
#include <bit>

namespace xylem::execution {

using collectives::Buffer;
using collectives::EdgeKind;
using collectives::kNone;
using collectives::StepKind;
using transport::Posted;
using transport::Room;

namespace {

/// How many slices of a step may be issued now. A slice of a copy or reduction may follow a slice
/// of another copy or reduction as soon as that slice has been enqueued; all other slices wait for
/// the completion of those before them. If `made` is given, slice `slice` of this step counts as
/// complete.
std::uint32_t ready_slices(const Run& run,
                           const ProgramStep& step,
                           StepId made = kNone,
                           std::uint32_t slice = 0) noexcept {
  std::uint32_t ready = step.slices;
  for (std::uint32_t e = step.first_edge; e < step.first_edge + step.edge_count; ++e) {
    const auto& edge = run.program->edges[e];
    const StepState& before = run.steps[edge.before];
    const bool follows = step.is_computed() && run.program->steps[edge.before].is_computed();
    std::uint32_t done = follows ? before.issued : before.completed;
    if (edge.before == made && done == slice) ++done;
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

bool may_issue(const Run& run, const StepState& state, const LaneState& lane) noexcept {
  // `ahead` has kMaxWindow bits, so a slice must be less than that far ahead of the oldest one that
  // has not completed.
  return lane.in_flight < run.program->window && state.issued - state.completed < kMaxWindow;
}

HeldView* view_of(Run& run, const Place& place, std::uint32_t slice) noexcept {
  if (place.view == kNone) return nullptr;
  HeldView& held = run.views[place.view + slice % run.program->window];
  return held.views == nullptr ? nullptr : &held;
}

/// True if several slices wait for the peer to read them. Further slices would only evict these
/// from the caches.
bool is_far_ahead(const Link& link) noexcept {
  constexpr std::uint32_t kAhead = 4;
  return link.view_bytes > 0 && link.views->unread(link.endpoint) >= kAhead;
}

/// The second place to which the bytes go when a slot is filled from `source`. It is `target`, or
/// no place if `source` is `target`, so that the bytes are there already.
CopyTarget also_to(const Run& run, std::byte* target, const std::byte* source) noexcept {
  return {source == target ? nullptr : target, run.past_cache};
}

}  // namespace

// ---- rounds ----

void Engine::queue(Execution& execution, StepId id) {
  auto& state = execution.run.steps[id];
  if (state.queued) return;
  state.queued = true;
  execution.run.ready.push_back(id);
}

void Engine::queue_again(Execution& execution, StepId id) {
  auto& state = execution.run.steps[id];
  if (state.queued) return;
  state.queued = true;
  execution.run.later.push_back(id);
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
  if (run.ready.empty() || execution.has_ended || execution.is_busy) return;
  execution.is_busy = true;
  execution.acquire();
  busy_.push_back(&execution);
}

void Engine::advance(Execution& execution, StepId id) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  if (step.lane != kNone) return pump(execution, step.lane);
  auto& state = run.steps[id];
  const std::uint32_t ready = std::min(ready_slices(run, step), state.completed + program.window);
  if (state.issued >= ready) return;
  if (!run.tickets.empty() && step.bytes > 0) return advance_on_device(execution, id, ready);
  if (step.is_unawaited && step.cast != kNone) {
    const Cast& cast = program.casts[step.cast];
    for (std::uint32_t i = cast.first_send; i < cast.first_send + cast.send_count; ++i) {
      if (run.steps[program.cast_sends[i]].issued <= state.issued) {
        return queue_again(execution, id);
      }
    }
  }
  const std::uint32_t slice = state.issued;
  run_local(execution, id, slice);
  ++state.issued;
  slice_done(execution, id, slice);
  if (state.issued < step.slices) queue_again(execution, id);
}

/// The step of a lane that issues its next message. kNone if all have been issued.
StepId Engine::head_of(Execution& execution, std::uint32_t lane_index) noexcept {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& lane = program.lanes[lane_index];
  for (auto& head = run.lanes[lane_index].head; head < lane.step_count; ++head) {
    const StepId id = program.lane_steps[lane.first_step + head];
    if (run.steps[id].issued < program.steps[id].slices) return id;
  }
  return kNone;
}

bool Engine::has_more(const Execution& execution, std::uint32_t lane_index) noexcept {
  const auto& run = execution.run;
  const auto& program = *run.program;
  if (program.is_exchange) return false;
  const auto& lane = program.lanes[lane_index];
  const auto first = program.lane_steps.begin() + lane.first_step;
  return std::any_of(first, first + lane.step_count, [&](StepId id) {
    return program.steps[id].is_message() && run.steps[id].issued < program.steps[id].slices;
  });
}

void Engine::pump(Execution& execution, std::uint32_t lane_index) {
  auto& run = execution.run;
  const auto& lane = run.program->lanes[lane_index];
  const bool one_by_one = lane.outgoing && execution.peers->links[lane.peer].view_bytes > 0;
  for (;;) {
    const StepId id = head_of(execution, lane_index);
    if (id == kNone || !execution.health) return;
    auto& state = run.steps[id];
    const std::uint32_t limit = ready_slices(run, run.program->steps[id]);
    if (state.issued >= limit || !may_issue(run, state, run.lanes[lane_index])) return;
    if (!post(execution, id, state.issued)) return queue_again(execution, id);
    if (!one_by_one) continue;
    const StepId next = head_of(execution, lane_index);
    if (next != kNone) queue_again(execution, next);
    return;
  }
}

/// Issues a slice. False if it must wait for room.
bool Engine::post(Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  if (!step.is_message()) {
    ++run.steps[id].issued;
    slice_done(execution, id, slice);
    return true;
  }
  if (step.kind == StepKind::send && step.slices > 1 &&
      is_far_ahead(execution.peers->links[program.lanes[step.lane].peer])) {
    return false;
  }
  if (step.kind == StepKind::send && step.cast != kNone) {
    transport::Reservation slot;
    const Room room = reserve(execution, step, kNone, slice, slot);
    // There may be no slot for several peers together, although there is one for each of them.
    if (room == Room::later && reserved_.size() == 1 && reserved_.front() == id) return false;
    if (room == Room::given) {
      send_with_copy(execution, step, slice);
      return true;
    }
  }
  ++run.steps[id].issued;
  ++run.lanes[step.lane].in_flight;
  Message& message = take_message(execution);
  if (post_message(execution, id, slice, message)) completed(message);
  return true;
}

/// Sends a slice by the reserved slot. If the cast has a copy, and the same slice is the next slice
/// of this copy and is ready, the slice is copied to both places in one pass. The last slice is
/// only sent, since its readers wait for nothing else.
void Engine::send_with_copy(Execution& execution, const ProgramStep& step, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const std::byte* source = place_of(run, program.sources[step.first_source], slice);
  const StepId id = program.casts[step.cast].copy;
  if (id == kNone || slice + 1 == step.slices || run.steps[id].issued != slice ||
      ready_slices(run, program.steps[id]) <= slice) {
    reserved_on_->fill(source, {});
    return commit(execution, slice);
  }
  const auto& copy = program.steps[id];
  std::byte* target = place_of(run, copy.target, slice);
  trace(run, copy, slice, Traced::source, 0, source);
  reserved_on_->fill(source, also_to(run, target, source));
  trace(run, copy, slice, Traced::result, 0, target);
  trace(run, copy, slice, Traced::along, 0, target);
  commit(execution, slice);
  slice_done(execution, id, run.steps[id].issued++);
}

/// Posts the message of a slice. True if it has completed at once.
bool Engine::post_message(Execution& execution, StepId id, std::uint32_t slice, Message& message) {
  const auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  const auto& lane = program.lanes[step.lane];
  const Link& link = execution.peers->links[lane.peer];
  const transport::Tag tag = tag_of(execution, step, slice);
  const std::uint64_t bytes = step.bytes == 0 ? 0 : program.slice_size(step, slice);
  message.transport = link.transport;
  message.views = link.views;
  message.endpoint = link.endpoint;
  message.step = id;
  message.slice = slice;
  message.incoming = !lane.outgoing;
  if (message.incoming) {
    const Memory memory = run.device.memory[step.target.base];
    const auto target = bytes == 0
                            ? transport::Region{}
                            : transport::Region{place_of(run, step.target, slice), bytes, memory};
    // Views for a device may have any length, since they are not in slots.
    const Memory reader = run.device.reader();
    const bool fits = program.slice_bytes <= link.view_bytes || reader.kind != MemoryKind::host;
    message.in_place =
        bytes > 0 && link.views != nullptr && fits && memory.kind == MemoryKind::host;
    return Posted::done ==
           (message.in_place ? link.views->recv_view(tag, target, message, reader)
                             : link.transport->recv(tag, transport::kExactMatch, target, message));
  }
  const auto source = bytes == 0 ? transport::ConstRegion{} : source_of(run, step, slice);
  return link.transport->send(link.endpoint, tag, source, message) == Posted::done;
}

/// The bytes that a step sends in a slice.
transport::ConstRegion Engine::source_of(const Run& run,
                                         const ProgramStep& step,
                                         std::uint32_t slice) noexcept {
  const Place& place = run.program->sources[step.first_source];
  return {.data = place_of(run, place, slice),
          .bytes = run.program->slice_size(step, slice),
          .memory = run.device.memory[place.base],
          .in_place = run.program->in_place_of(place)};
}

void Engine::slice_done(Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  auto& state = run.steps[id];
  ++moved_;
  state.ahead |= std::uint64_t{1} << (slice - state.completed);
  const auto run_length = static_cast<std::uint32_t>(std::countr_one(state.ahead));
  if (run_length == 0) return;
  state.completed += run_length;
  state.ahead = run_length == 64 ? 0 : state.ahead >> run_length;
  ++execution.advanced;
  if (state.completed == step.slices) --run.steps_left;
  for (std::uint32_t s = 0; s < step.successor_count; ++s) {
    const StepId next = program.successors[step.first_successor + s];
    if (run.steps[next].issued < program.steps[next].slices) queue(execution, next);
  }
}

// ---- bytes ----

transport::Tag Engine::tag_of(const Execution& execution,
                              const ProgramStep& step,
                              std::uint32_t slice) {
  const auto& lane = execution.run.program->lanes[step.lane];
  const Peers& peers = *execution.peers;
  const auto [source, target] = lane.ends(peers.rank);
  return collective_tag(
      message_tag(peers.groups[target], source, lane.number, step.ordinal + slice),
      execution.sequence, execution.fingerprint, step.bytes);
}

/// Runs a slice of a copy or reduction on the CPU.
void Engine::run_local(Execution& execution, StepId id, std::uint32_t slice) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  if (step.bytes == 0) return;
  std::byte* target = place_of(run, step.target, slice);
  transport::Reservation slot;
  // Without a slot, the result is sent later, from its own place. Waiting for a slot here would
  // hold up the senders of the messages that this slice reads.
  if (reserve(execution, step, id, slice, slot) == Room::given) {
    compute_shared(execution, step, slice, slot, target);
  } else {
    compute(execution, id, {slice}, target);
    release_views(execution, step, slice);
  }
  trace(run, step, slice, Traced::result, 0, target);
}

std::span<const void*> Engine::find_sources(Run& run,
                                            const ProgramStep& step,
                                            std::uint32_t slice) {
  if (run.sources.size() < step.source_count) run.sources.resize(step.source_count);
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    const Place& place = run.program->sources[step.first_source + i];
    const HeldView* held = view_of(run, place, slice);
    run.sources[i] = held != nullptr ? held->view.data : place_of(run, place, slice);
    trace(run, step, slice, Traced::source, i, run.sources[i]);
  }
  return {run.sources.data(), step.source_count};
}

/// The work of a Compute for slices that lie next to each other.
ComputeWork Engine::work_of(Run& run,
                            const ProgramStep& step,
                            const Slices& slices,
                            std::byte* target) {
  const auto& program = *run.program;
  ComputeWork work;
  work.element_bytes = program.element_bytes;
  work.bytes = (slices.count - 1) * program.slice_bytes + program.slice_size(step, slices.last());
  work.target = target;
  work.sources = find_sources(run, step, slices.first);
  if (step.kind == StepKind::reduce) {
    work.kind = ComputeWork::Kind::reduce;
    work.reduce = program.kernel;
    work.kernel = program.kernel_id;
    work.finish = {step.finish ? program.divisor : 1};
    // A result that is also sent is read again soon, so it should stay in the cache.
    const bool is_last = step.target.buffer == Buffer::output && step.cast == kNone;
    work.past_cache = run.past_cache && is_last;
  } else if (program.scale != nullptr &&
             program.sources[step.first_source].buffer == Buffer::input) {
    work.kind = ComputeWork::Kind::scale;
    work.scale = program.scale;
    work.kernel = program.scale_id;
    work.factor = run.factor;
  } else {
    work.past_cache = run.past_cache;
  }
  return work;
}

/// Writes a slice into a slot that peers read, sends it, and stores it at its own place, too. It is
/// not sent if the sender of a message from which it is made has withdrawn that message.
void Engine::compute_shared(Execution& execution,
                            const ProgramStep& step,
                            std::uint32_t slice,
                            const transport::Reservation& slot,
                            std::byte* target) {
  auto& run = execution.run;
  ComputeWork work = work_of(run, step, {slice}, target);
  if (work.kind == ComputeWork::Kind::copy) {
    const auto* source = static_cast<const std::byte*>(run.sources[0]);
    reserved_on_->fill(source, also_to(run, target, source));
    return release_and_commit(execution, step, slice);
  }
  const bool goes_past_cache = run.past_cache || slot.past_cache;
  if (work.kind == ComputeWork::Kind::reduce && goes_past_cache) {
    work.past_cache = run.past_cache;
    work.shared_past_cache = slot.past_cache;
    work.shared = slot.memory;
    HostCompute::run(work);
    return release_and_commit(execution, step, slice);
  }
  // The slice is sent first. Then it is copied to its own place, from the slot, which is in the
  // cache.
  work.target = slot.memory;
  HostCompute::run(work);
  release_and_commit(execution, step, slice);
  copy_bytes(target, slot.memory, work.bytes);
}

void Engine::release_and_commit(Execution& execution,
                                const ProgramStep& step,
                                std::uint32_t slice) {
  release_views(execution, step, slice);
  if (execution.run.is_lost) return reserved_on_->abandon();
  commit(execution, slice);
}

void Engine::release_views(Execution& execution, const ProgramStep& step, std::uint32_t slice) {
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    const Place& place = execution.run.program->sources[step.first_source + i];
    if (HeldView* held = view_of(execution.run, place, slice)) release(execution, *held);
  }
}

void Engine::release(Execution& execution, HeldView& held) {
  if (held.views == nullptr) return;
  const bool is_whole = held.views->release(held.view);
  held.views = nullptr;
  if (held.view.is_on_device) --views_on_device_;
  --execution.run.views_held;
  --views_held_;
  ++views_touched_;
  if (!is_whole) lose_view(execution, held.step);
}

/// The sender has withdrawn a message while it was read. The execution computes and sends nothing
/// more, and ends when the reason is known.
void Engine::lose_view(Execution& execution, StepId id) {
  if (!execution.health || execution.has_ended || execution.run.is_lost) return;
  execution.run.is_lost = true;
  const auto* const program = execution.run.program;
  const std::uint32_t peer =
      id == kPointToPoint ? kNone : program->lanes[program->steps[id].lane].peer;
  listener_.on_wire_error(execution, peer, Code::peer_lost);
}

/// Handles a slice that has arrived. If a step reads it through a view, the slice stays where it
/// is. Otherwise it is copied to its place, and sent on if a send of it can go now.
void Engine::take_slice(Execution& execution, StepId id, std::uint32_t slice, HeldView view) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  trace(run, step, slice, Traced::received, 0, view.view.data);
  if (step.target.view != kNone) {
    run.views[step.target.view + slice % run.program->window] = view;
    ++run.views_held;
    ++views_held_;
    if (view.view.is_on_device) ++views_on_device_;
    ++views_touched_;
    return;
  }
  const std::byte* data = view.view.data;
  std::byte* target = place_of(run, step.target, slice);
  transport::Reservation slot;
  const bool sends_on = reserve(execution, step, id, slice, slot) == Room::given;
  // The last slice is sent on before it is copied to its place, since its readers wait for nothing
  // else. But a message that its sender can withdraw is sent on only after release() has shown that
  // it was not withdrawn.
  const bool is_brought_apart = !sends_on || (slice + 1 == step.slices && !view.view.may_change);
  const CopyTarget also = is_brought_apart ? CopyTarget{} : also_to(run, target, data);
  if (sends_on) reserved_on_->fill(data, also);
  if (sends_on && !view.view.may_change) commit(execution, slice);
  if (is_brought_apart) bring(run, step, slice, data);
  if (!view.views->release(view.view)) lose_view(execution, id);
  if (!sends_on || !view.view.may_change) return;
  run.is_lost ? reserved_on_->abandon() : commit(execution, slice);
}

/// Copies a slice that has arrived to its place.
void Engine::bring(const Run& run,
                   const ProgramStep& step,
                   std::uint32_t slice,
                   const std::byte* data) {
  std::byte* const target = place_of(run, step.target, slice);
  if (data == target) return;
  copy_to({target, run.past_cache}, data, run.program->slice_size(step, slice));
}

/// Reserves a slot for a slice that the sends of the step's cast send. The slot serves all sends of
/// the cast that can issue this slice now. If `maker` is given, this step counts as having made the
/// slice.
Room Engine::reserve(Execution& execution,
                     const ProgramStep& step,
                     StepId maker,
                     std::uint32_t slice,
                     transport::Reservation& slot) {
  auto& run = execution.run;
  const auto& program = *run.program;
  if (step.cast == kNone || step.is_unawaited) return Room::never;
  const std::uint64_t bytes = program.slice_size(step, slice);
  reserved_.clear();
  reserved_peers_.clear();
  reserved_on_ = nullptr;
  const Cast& cast = program.casts[step.cast];
  for (std::uint32_t i = cast.first_send; i < cast.first_send + cast.send_count; ++i) {
    const StepId id = program.cast_sends[i];
    const ProgramStep& send = program.steps[id];
    const StepState& state = run.steps[id];
    const Link link = execution.peers->links[program.lanes[send.lane].peer];
    const bool shares = bytes > link.inline_bytes && bytes <= link.view_bytes &&
                        (reserved_on_ == nullptr || reserved_on_ == link.views);
    if (!shares || state.issued != slice || head_of(execution, send.lane) != id ||
        !may_issue(run, state, run.lanes[send.lane]) ||
        ready_slices(run, send, maker, slice) <= slice) {
      continue;
    }
    reserved_on_ = link.views;
    reserved_.push_back(id);
    reserved_peers_.push_back(link.endpoint);
  }
  if (reserved_on_ == nullptr) return Room::never;
  // No slot is needed for memory that the peers can read. But a result that is written with
  // non-temporal stores is not in the cache at its own place, so peers read it faster from a slot.
  const bool leaves_cache = maker != kNone && run.past_cache;
  const auto source = source_of(run, program.steps[reserved_.front()], slice);
  if (!leaves_cache && reserved_on_->is_readable(source)) return Room::never;
  return reserved_on_->reserve(reserved_peers_, bytes, slot);
}

void Engine::commit(Execution& execution, std::uint32_t slice) {
  auto& run = execution.run;
  for (std::size_t i = 0; i < reserved_.size(); ++i) {
    const ProgramStep& send = run.program->steps[reserved_[i]];
    reserved_on_->commit(reserved_peers_[i], tag_of(execution, send, slice));
    ++run.steps[reserved_[i]].issued;
    slice_done(execution, reserved_[i], slice);
    const StepId next = head_of(execution, send.lane);
    if (next != kNone) queue_again(execution, next);
  }
}

bool Engine::relieve() {
  if (views_held_ == 0) return false;
  const std::uint64_t given_up_before = views_given_up_;
  std::uint32_t holders = 0;
  for (Execution* execution = active_; execution != nullptr; execution = execution->active_next) {
    if (execution->run.views_held > 0) ++holders;
  }
  for (Execution* execution = active_; execution != nullptr; execution = execution->active_next) {
    const bool is_on_device = execution->run.device.reader().kind != MemoryKind::host;
    // Views of device memory hold no slots. They need not be given up for a call that runs alone.
    if (execution->run.views_held == 0 || (is_on_device && holders == 1)) continue;
    for (HeldView& held : execution->run.views) put_away(*execution, held);
    for (HeldView& held : execution->run.arrived) put_away(*execution, held);
  }
  return views_given_up_ > given_up_before;
}

/// Copies a viewed message to its own place, unless work of a device reads it already.
void Engine::put_away(Execution& execution, HeldView& held) {
  if (held.views == nullptr || held.is_read || held.is_put_away) return;
  ++views_given_up_;
  if (held.view.is_on_device) return put_away_on_device(execution, held);
  const auto& run = execution.run;
  const auto& step = run.program->steps[held.step];
  const std::uint64_t bytes = run.program->slice_size(step, held.slice);
  copy_bytes(place_of(run, step.target, held.slice), held.view.data, bytes);
  release(execution, held);
}

/// Gives up all views if no view has been taken or given up for many turns. The steps that read the
/// views wait for messages of other peers, and these peers may wait for the slots of the viewed
/// messages.
void Engine::look_at_views() {
  // Views of device memory hold no slots, but numbers of announced messages; a message that gets no
  // number goes through slots, or waits if it is longer.
  constexpr std::uint32_t kPatientTurnsForSlots = 200, kPatientTurnsForStreams = 20'000;
  const bool holds_slots = views_held_ > views_on_device_;
  const bool stand_still = views_held_ > 0 && views_touched_ == views_touched_before_;
  views_touched_before_ = views_touched_;
  still_turns_ = stand_still ? still_turns_ + 1 : 0;
  if (still_turns_ >= (holds_slots ? kPatientTurnsForSlots : kPatientTurnsForStreams)) relieve();
}

}  // namespace xylem::execution
