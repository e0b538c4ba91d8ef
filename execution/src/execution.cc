// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/execution.h"

#include <algorithm>
#include <bit>
#include <new>

namespace xylem::execution {

using collectives::EdgeKind;
using collectives::kNone;

namespace {

constexpr std::align_val_t kAlignment{64};

std::byte* allocate(std::uint64_t bytes) noexcept {
  return static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
}

void deallocate(std::byte* memory) noexcept { ::operator delete(memory, kAlignment); }

}  // namespace

Result<Ticket> Compute::gate_after(void* /*stream*/) {
  return failure(Code::unsupported, "the device has no streams");
}

Result<Ticket> Compute::gate_before(void* stream) { return gate_after(stream); }

Result<std::unique_ptr<Mesh>> Compute::make_mesh(std::uint32_t /*rank*/) {
  return failure(Code::unsupported, "the device has no streams");
}

std::byte* Compute::allocate_scratch(std::uint64_t bytes) noexcept { return allocate(bytes); }

void Compute::free_scratch(std::byte* memory) noexcept { deallocate(memory); }

Status Compute::pin_scratch(std::byte* /*memory*/) { return {}; }

void FreeScratch::operator()(std::byte* memory) const noexcept {
  if (compute == nullptr) return deallocate(memory);
  where == Scratch::on_device ? compute->free_device_scratch(memory)
                              : compute->free_scratch(memory);
}

std::byte* ScratchBuffer::reserve(std::uint64_t bytes, Compute* compute) noexcept {
  if (bytes == 0) return memory_.get();
  if (bytes > capacity_ || memory_.get_deleter().compute != compute) {
    memory_.reset();
    std::byte* const memory = compute == nullptr ? allocate(bytes)
                              : where_ == Scratch::on_device
                                  ? compute->allocate_device_scratch(bytes)
                                  : compute->allocate_scratch(bytes);
    memory_ = {memory, FreeScratch{compute, where_}};
    capacity_ = memory == nullptr ? 0 : bytes;
    is_pinned_ = false;
  }
  return memory_.get();
}

void Run::queue_all() {
  for (auto id = static_cast<StepId>(steps.size()); id-- > 0;) {
    queue(id);  // The engine takes steps from the back, thus in list order.
  }
}

std::uint32_t Run::ready_slices(const ProgramStep& step,
                                StepId made,
                                std::uint32_t slice) const noexcept {
  std::uint32_t count = step.slices;
  for (const auto& edge : program->edges_of(step)) {
    const StepState& before = steps[edge.before];
    // A copy or reduction may issue a slice as soon as the slices of copies and reductions on which
    // it depends have been issued, since a device runs them in this order. In all other cases, the
    // slices on which a slice depends must have completed.
    const bool follows = step.is_computed() && program->steps[edge.before].is_computed();
    std::uint32_t done = follows ? before.issued : before.completed;
    if (edge.before == made && done == slice) ++done;
    std::uint32_t limit = done;
    if (edge.kind == EdgeKind::whole) {
      limit = done == program->steps[edge.before].slices ? step.slices : 0;
    } else if (edge.kind == EdgeKind::lag) {
      limit = done + program->window;
    }
    count = std::min(count, limit);
  }
  return count;
}

StepId Run::head_of(std::uint32_t lane) noexcept {
  const auto in_order = program->steps_of(program->lanes[lane]);
  for (auto& head = lanes[lane].head; head < in_order.size(); ++head) {
    const StepId id = in_order[head];
    if (steps[id].issued < program->steps[id].slices) return id;
  }
  return kNone;
}

void Execution::complete_slice(StepId id, std::uint32_t slice) {
  const auto& program = *run.program;
  const auto& step = program.steps[id];
  auto& state = run.steps[id];
  state.ahead |= std::uint64_t{1} << (slice - state.completed);
  ++advanced;
  const auto in_order = static_cast<std::uint32_t>(std::countr_one(state.ahead));
  if (in_order == 0) return;
  state.completed += in_order;
  state.ahead = in_order == 64 ? 0 : state.ahead >> in_order;
  if (state.completed == step.slices) --run.steps_left;
  for (const StepId next : program.successors_of(step)) {
    if (run.steps[next].issued < program.steps[next].slices) run.queue(next);
  }
}

}  // namespace xylem::execution
