// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/device_pieces.h"

#include "slices.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace xylem::execution {

using collectives::EdgeKind;
using collectives::kNone;

namespace {

/// A step with this many pending pieces enqueues a further piece only if that piece has kFullPiece
/// bytes.
constexpr std::uint32_t kPiecesAhead = 2;
constexpr std::uint64_t kFullPiece = 1 << 20;

/// True if a slice directly follows the previous slice in memory, at its target and at all sources.
bool is_adjacent(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  const Program& program = *run.program;
  const auto is_next = [&](const OperandLayout& operand) {
    return !operand.ring || slice % program.window != 0;
  };
  const auto is_next_source = [&](const OperandLayout& source) {
    const HeldView* const before = run.view_of(source, slice - 1);
    const HeldView* const held = run.view_of(source, slice);
    if ((held == nullptr) != (before == nullptr)) return false;
    return held == nullptr ? is_next(source)
                           : held->view.data == before->view.data + program.slice_bytes;
  };
  return is_next(step.target) && std::ranges::all_of(program.sources_of(step), is_next_source);
}

/// True if a slice of a step reads a view that is being evicted.
bool waits_for_eviction(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  return std::ranges::any_of(run.program->sources_of(step), [&](const OperandLayout& source) {
    return source.view != kNone && run.view_at(source, slice).is_evicted;
  });
}

/// How many operands of a copy or reduction a slice is read from or written to in host memory.
std::uint64_t count_on_host(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  const auto is_on_host = [&](const OperandLayout& operand) {
    return run.device.memory[operand.base].kind == MemoryKind::host;
  };
  const auto is_read_there = [&](const OperandLayout& source) {
    return is_on_host(source) && run.view_of(source, slice) == nullptr;
  };
  const auto read = std::ranges::count_if(run.program->sources_of(step), is_read_there);
  return static_cast<std::uint64_t>(read) + (is_on_host(step.target) ? 1 : 0);
}

/// The number of slices that follow each other in Run::unfetched and in memory, from `first` on,
/// until they fill a piece.
std::uint32_t count_adjacent(const Run& run, std::size_t first) noexcept {
  const Program& program = *run.program;
  const HeldView& view = run.unfetched[first];
  const bool may_wrap = program.steps[view.step].target.ring;
  std::uint32_t slices = 1;
  for (std::size_t at = first + 1;
       at < run.unfetched.size() && slices * program.slice_bytes < kFullPiece; ++at, ++slices) {
    const HeldView& next = run.unfetched[at];
    const bool is_next = next.step == view.step && next.slice == view.slice + slices &&
                         next.view.data == view.view.data + slices * program.slice_bytes &&
                         !(may_wrap && next.slice % program.window == 0);
    if (!is_next) break;
  }
  return slices;
}

/// Records that pending work reads the views of a slice.
void mark_read(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  for (const OperandLayout& source : run.program->sources_of(step)) {
    if (source.view != kNone) run.view_at(source, slice).is_read = true;
  }
}

}  // namespace

void DevicePieces::enqueue(Execution& execution, StepId id, std::uint32_t ready) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  auto& state = run.steps[id];
  Slices piece{state.issued};
  if (waits_for_eviction(run, step, piece.first)) return run.queue_again(id);
  while (piece.first + piece.count < ready && piece.count * program.slice_bytes < kFullPiece &&
         is_adjacent(run, step, piece.first + piece.count) &&
         !waits_for_eviction(run, step, piece.first + piece.count)) {
    ++piece.count;
  }
  // If no piece is enqueued here, advance() queues the step again when one of its pieces has
  // completed.
  const bool is_full = piece.count * program.slice_bytes >= kFullPiece;
  if (state.pieces >= kPiecesAhead && !is_full) return;
  const bool is_on_host = count_on_host(run, step, piece.first) > 0;
  if (is_on_host && !pin(listener_, execution, run.scratch)) return;
  const Ticket ticket = compute(execution, id, piece);
  state.issued += piece.count;
  if (ticket.is_pending()) {
    await(execution, id, piece, ticket);
  } else {
    for (std::uint32_t slice = piece.first; slice <= piece.last(); ++slice) {
      views_.release_sources(execution, step, slice);
      execution.complete_slice(id, slice);
    }
  }
  if (state.issued < step.slices) run.queue_again(id);
}

Ticket DevicePieces::compute(Execution& execution, StepId id, const Slices& piece) {
  auto& run = execution.run;
  const auto& step = run.program->steps[id];
  const ComputeWork work = work_of(run, step, piece, run.address_of(step.target, piece.first));
  // The predecessors of the last slice complete after the predecessors of the other slices.
  find_pending(run, step, piece.last());
  // All slices of a step are on one queue, so they complete in order.
  Compute& device = *run.device.compute;
  count_piece(count_on_host(run, step, piece.first) * work.bytes);
  return device.enqueue(id % device.queues(), work, after_);
}

/// Fills `after_` with the tickets of the pending work that must complete before a slice of a step
/// begins.
void DevicePieces::find_pending(const Run& run, const ProgramStep& step, std::uint32_t slice) {
  const auto& program = *run.program;
  after_.clear();
  for (const auto& edge : program.edges_of(step)) {
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

/// Records a piece that has been enqueued, and queues the copies and reductions that follow it,
/// since they may be enqueued now.
void DevicePieces::await(Execution& execution, StepId id, const Slices& piece, Ticket ticket) {
  auto& run = execution.run;
  const auto& program = *run.program;
  const ProgramStep& step = program.steps[id];
  ++run.steps[id].pieces;
  for (std::uint32_t slice = piece.first; slice <= piece.last(); ++slice) {
    run.tickets[id * program.window + slice % program.window] = ticket;
    mark_read(run, step, slice);
    pending_.add({.execution = &execution,
                  .step = id,
                  .slice = slice,
                  .ticket = ticket,
                  .is_last = slice == piece.last()});
  }
  for (const StepId next : program.successors_of(step)) {
    if (program.steps[next].is_computed()) run.queue(next);
  }
}

void DevicePieces::fetch(Execution& execution) {
  auto& run = execution.run;
  // Messages of several steps arrive in turn.
  std::ranges::sort(run.unfetched, {},
                    [](const HeldView& view) { return std::pair(view.step, view.slice); });
  std::size_t first = 0;
  // A message that its sender has withdrawn may end the execution in this loop.
  while (first < run.unfetched.size() && execution.health && !run.is_lost) {
    const std::uint32_t slices = count_adjacent(run, first);
    const bool is_full = slices * run.program->slice_bytes >= kFullPiece;
    if (run.steps[run.unfetched[first].step].pieces < kPiecesAhead || is_full) {
      fetch_piece(execution, first, slices);
    } else {
      first += slices;  // advance() queues the step again when one of its pieces has completed.
    }
  }
}

/// Enqueues one copy for `slices` consecutive views, beginning at Run::unfetched[first], to their
/// place in the target of their step.
void DevicePieces::fetch_piece(Execution& execution, std::size_t first, std::uint32_t slices) {
  auto& run = execution.run;
  const auto begin = run.unfetched.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + slices;
  const StepId id = begin->step;
  if (!pin(listener_, execution, run.scratch)) return;
  const Ticket ticket = enqueue_to_target(run, *begin, slices);
  std::uint64_t bytes = 0;
  for (auto view = begin; view != end; ++view) {
    bytes += run.program->slice_size(run.program->steps[id], view->slice);
  }
  count_piece(bytes);  // The places of received slices are in host memory.
  if (ticket.is_pending()) {
    ++run.steps[id].pieces;
    for (auto view = begin; view != end; ++view) {
      pending_.add({.execution = &execution,
                    .step = id,
                    .slice = view->slice,
                    .ticket = ticket,
                    .view = *view,
                    .is_last = view + 1 == end});
    }
    run.unfetched.erase(begin, end);
    return;
  }
  // The execution may end in this loop. HeldViews::release_all() then releases the views that are
  // left in Run::unfetched.
  const std::vector<HeldView> copied(begin, end);
  run.unfetched.erase(begin, end);
  for (const HeldView& view : copied) {
    if (!view.views->release(view.view)) views_.on_withdrawn(execution, id);
    if (!run.is_lost && !execution.has_ended) execution.complete_slice(id, view.slice);
  }
}

bool DevicePieces::enqueue_copy(Execution& execution, const OnDevice::Copy& copy) {
  Ticket ticket;
  if (copy.bytes > 0) {
    Compute& device = *execution.run.device.compute;
    ScratchBuffer& staged = execution.run.staged;
    const std::byte* const memory = staged.reserved(copy.bytes, &device);
    const bool is_staged = copy.target == memory || copy.source == memory;
    if (is_staged && !pin(listener_, execution, staged)) {
      if (copy.view.views != nullptr) copy.view.views->release(copy.view.view);
      return true;
    }
    count_piece(is_staged ? copy.bytes : 0);
    ticket = enqueue_bytes(device, 0, copy.target, copy.source, copy.bytes);
  }
  if (ticket.is_pending()) {
    pending_.add({.execution = &execution, .ticket = ticket, .view = copy.view});
  } else if (copy.view.views != nullptr) {
    copy.view.views->release(copy.view.view);
  }
  return ticket.is_pending();
}

void DevicePieces::release(const PendingWork::Work& work) {
  Execution& execution = *work.execution;
  if (work.view.views != nullptr && !work.view.views->release(work.view.view)) {
    views_.on_withdrawn(execution, work.step);
  }
  if (work.evicts) return views_.on_copied(work);
  if (work.step == kPointToPoint) return;
  if (work.is_last) --execution.run.steps[work.step].pieces;
  const ProgramStep& step = execution.run.program->steps[work.step];
  if (step.is_computed()) views_.release_sources(execution, step, work.slice);
}

void DevicePieces::advance(const PendingWork::Work& work) {
  Execution& execution = *work.execution;
  const ProgramStep& step = execution.run.program->steps[work.step];
  execution.complete_slice(work.step, work.slice);
  const bool has_unfetched = work.is_last && !execution.run.unfetched.empty();
  if (has_unfetched || execution.run.steps[work.step].issued < step.slices) {
    execution.run.queue(work.step);
  }
}

}  // namespace xylem::execution
