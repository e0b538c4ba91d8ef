// SPDX-License-Identifier: Apache-2.0
#include "slices.h"

#include "xylem/base/copy.h"
#include "xylem/execution/tag.h"
#include "xylem/execution/trace.h"

#include <span>

namespace xylem::execution {

using collectives::Buffer;
using collectives::StepKind;
using transport::Posted;

transport::Tag tag_of(const Execution& execution, const ProgramStep& step, std::uint32_t slice) {
  const auto& lane = execution.run.program->lanes[step.lane];
  const Peers& peers = *execution.peers;
  const auto [source, target] = lane.ends(peers.rank);
  // The sizes of messages are below 2^63.
  const bool is_marked = execution.run.program->is_agreed_on_devices && step.bytes > 0;
  return collective_tag(
      message_tag(peers.groups[target], source, lane.number, step.ordinal + slice),
      execution.sequence, execution.fingerprint, step.bytes | std::uint64_t{is_marked} << 63);
}

transport::ConstRegion region_of(const Run& run,
                                 const ProgramStep& step,
                                 std::uint32_t slice) noexcept {
  const OperandLayout& source = run.program->source_of(step);
  return {.data = run.address_of(source, slice),
          .bytes = run.program->slice_size(step, slice),
          .memory = run.device.memory[source.base],
          .in_place = run.program->in_place_of(source)};
}

Message* post(MessagePool& messages, Execution& execution, StepId id, std::uint32_t slice) {
  const auto& run = execution.run;
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  const auto& lane = program.lanes[step.lane];
  const Link& link = execution.peers->link(lane);
  const transport::Tag tag = tag_of(execution, step, slice);
  Message& message = messages.acquire(execution, link);
  message.step = id;
  message.slice = slice;
  message.incoming = !lane.outgoing;
  Posted posted{};
  if (message.incoming) {
    transport::Region target;
    if (step.bytes > 0) {
      target = {run.address_of(step.target, slice), program.slice_size(step, slice),
                run.device.memory[step.target.base]};
    }
    // A view that a device reads may have any length, since it is not in a slot.
    const Memory reader = run.device.reader();
    const bool fits = program.slice_bytes <= link.view_bytes || reader.kind != MemoryKind::host;
    message.in_place =
        target.bytes > 0 && link.views != nullptr && fits && target.memory.kind == MemoryKind::host;
    posted = message.in_place ? link.views->recv_view(tag, target, message, reader)
                              : link.transport->recv(tag, transport::kExactMatch, target, message);
  } else {
    const auto source = step.bytes == 0 ? transport::ConstRegion{} : region_of(run, step, slice);
    posted = link.transport->send(link.endpoint, tag, source, message);
  }
  return posted == Posted::done ? &message : nullptr;
}

namespace {

std::span<const void*> find_sources(Run& run, const ProgramStep& step, std::uint32_t slice) {
  if (run.sources.size() < step.source_count) run.sources.resize(step.source_count);
  std::uint32_t i = 0;
  for (const OperandLayout& source : run.program->sources_of(step)) {
    const HeldView* held = run.view_of(source, slice);
    run.sources[i] = held != nullptr ? held->view.data : run.address_of(source, slice);
    trace(run, step, slice, Traced::source, i, run.sources[i]);
    ++i;
  }
  return {run.sources.data(), step.source_count};
}

}  // namespace

ComputeWork work_of(Run& run, const ProgramStep& step, const Slices& slices, std::byte* target) {
  const auto& program = *run.program;
  ComputeWork work;
  work.element_bytes = program.element_bytes;
  work.bytes = (slices.count - 1) * program.slice_bytes + program.slice_size(step, slices.last());
  work.target = target;
  work.sources = find_sources(run, step, slices.first);
  if (step.kind == StepKind::reduce) {
    work.kind = ComputeWork::Kind::reduce;
    work.reduce = program.arithmetic.reduce;
    work.kernel = program.arithmetic.reduce_id;
    work.finish = {step.finish ? program.arithmetic.divisor : 1};
    // A result that is also sent is read again soon, so it should stay in the cache.
    const bool is_last = step.target.buffer == Buffer::output && step.cast == collectives::kNone;
    work.non_temporal = run.non_temporal && is_last;
  } else if (program.arithmetic.scale != nullptr &&
             program.source_of(step).buffer == Buffer::input) {
    work.kind = ComputeWork::Kind::scale;
    work.scale = program.arithmetic.scale;
    work.kernel = program.arithmetic.scale_id;
    work.factor = run.factor;
  } else {
    work.non_temporal = run.non_temporal;
  }
  return work;
}

void copy_to_target(const Run& run,
                    const ProgramStep& step,
                    std::uint32_t slice,
                    const std::byte* data) {
  std::byte* const target = run.address_of(step.target, slice);
  if (data == target) return;
  copy_to({target, run.non_temporal}, data, run.program->slice_size(step, slice));
}

bool pin(EngineListener& listener, Execution& execution, ScratchBuffer& scratch) {
  const Status pinned = scratch.pin();
  if (pinned) return true;
  execution.run.is_lost = true;
  listener.on_compute_error(execution, pinned);
  return false;
}

Ticket enqueue_bytes(
    Compute& device, std::uint32_t queue, void* target, const void* source, std::uint64_t bytes) {
  ComputeWork work;
  work.bytes = bytes;
  work.target = static_cast<std::byte*>(target);
  work.sources = {&source, 1};
  return device.enqueue(queue, work, {});
}

Ticket enqueue_to_target(const Run& run, const HeldView& first, std::uint32_t slices) {
  const auto& program = *run.program;
  const ProgramStep& step = program.steps[first.step];
  Compute& device = *run.device.compute;
  return enqueue_bytes(
      device, first.step % device.queues(), run.address_of(step.target, first.slice),
      first.view.data,
      (slices - 1) * program.slice_bytes + program.slice_size(step, first.slice + slices - 1));
}

}  // namespace xylem::execution
