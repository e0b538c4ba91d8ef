// SPDX-License-Identifier: Apache-2.0
//
// Derives dependencies from hazards. Steps are processed in the order in which a planner adds them.
// Each step depends on the last writer of each chunk that it reads, and on the last writer and all
// later readers of each chunk that it writes. If an input chunk and an output chunk share memory in
// an in-place call, a write to one of them is also a write to the other. An exception is a copy
// between the two, which the engine skips in such a call.
#include "xylem/collectives/builder.h"

#include "xylem/base/check.h"
#include "xylem/collectives/alias.h"

#include <algorithm>
#include <string>

namespace xylem::collectives {
namespace {

std::uint32_t block_count(const Shape& shape, std::uint32_t parts) {
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast: return parts;
    case Collective::all_to_all: return shape.ranks * shape.ranks;
    case Collective::barrier: return 0;
    default: return shape.ranks;
  }
}

}  // namespace

Builder::Builder(std::string_view algorithm,
                 const Shape& shape,
                 std::uint32_t rank,
                 std::uint32_t blocks,
                 std::uint32_t channels) {
  schedule_.algorithm = std::string(algorithm);
  schedule_.shape = shape;
  schedule_.rank = rank;
  schedule_.blocks = block_count(shape, blocks);
  schedule_.channels = channels;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    hazards_[static_cast<int>(buffer)].resize(chunk_count(schedule_, rank, buffer));
  }
  output_of_.assign(hazards_[static_cast<int>(Buffer::input)].size(), kNone);
  input_of_.assign(hazards_[static_cast<int>(Buffer::output)].size(), kNone);
  for (std::uint32_t chunk = 0; chunk < input_of_.size(); ++chunk) {
    const auto input = aliased_input(shape, rank, chunk);
    if (!input) continue;
    output_of_[*input] = chunk;
    input_of_[chunk] = *input;
  }
}

void Builder::reserve(std::size_t steps, std::size_t operands) {
  schedule_.steps.reserve(steps);
  schedule_.operands.reserve(operands);
  schedule_.predecessors.reserve(operands);
  readers_.reserve(operands);
}

Chunks Builder::add_scratch(std::uint32_t first_block, std::uint32_t count) {
  const auto first = static_cast<std::uint32_t>(schedule_.scratch.size());
  for (std::uint32_t i = 0; i < count; ++i) schedule_.scratch.push_back(first_block + i);
  hazards_[static_cast<int>(Buffer::scratch)].resize(schedule_.scratch.size());
  return scratch(first, count);
}

StepId Builder::send(std::uint32_t peer, Chunks source, std::uint8_t channel) {
  return append_to(peer, channel, StepKind::send, {&source, 1}, nullptr);
}

StepId Builder::recv(std::uint32_t peer, Chunks target, std::uint8_t channel) {
  return append_to(peer, channel, StepKind::recv, {}, &target);
}

StepId Builder::copy(Chunks target, Chunks source) {
  append(StepKind::copy, {&source, 1}, &target);
  return newest();
}

StepId Builder::reduce(Chunks target, std::initializer_list<Chunks> sources, bool finish) {
  return reduce(target, std::span(sources.begin(), sources.size()), finish);
}

StepId Builder::reduce(Chunks target, std::span<const Chunks> sources, bool finish) {
  append(StepKind::reduce, sources, &target).finish = finish;
  return newest();
}

StepId Builder::put(std::uint32_t peer, Chunks target, Chunks source, std::uint8_t channel) {
  target.rank = peer;
  return append_to(peer, channel, StepKind::put, {&source, 1}, &target);
}

StepId Builder::signal(std::uint32_t peer, std::uint8_t channel) {
  return append_to(peer, channel, StepKind::signal, {}, nullptr);
}

StepId Builder::wait(std::uint32_t peer, std::uint32_t value, std::uint8_t channel) {
  const StepId id = append_to(peer, channel, StepKind::wait, {}, nullptr);
  schedule_.steps[id].value = value;
  return id;
}

void Builder::after(StepId step, StepId before) {
  XYLEM_CHECK(step + 1 == schedule_.steps.size() && before < step, step, before);
  depend_on(before);
}

Schedule Builder::take() && { return std::move(schedule_); }

StepId Builder::newest() const noexcept { return static_cast<StepId>(schedule_.steps.size() - 1); }

StepId Builder::append_to(std::uint32_t peer,
                          std::uint8_t channel,
                          StepKind kind,
                          std::span<const Chunks> sources,
                          const Chunks* target) {
  Step& step = append(kind, sources, target);
  step.peer = peer;
  step.channel = channel;
  return newest();
}

// Writes the fields directly into the vector. Building the step elsewhere and copying it would
// stall the processor (store forwarding), which matters for plans with a hundred thousand steps.
Step& Builder::append(StepKind kind, std::span<const Chunks> sources, const Chunks* target) {
  const Chunks* model = target != nullptr ? target : sources.empty() ? nullptr : &sources[0];
  const std::uint32_t count = model != nullptr ? model->count : 0;
  Step& step = schedule_.steps.emplace_back();
  step.kind = kind;
  step.chunk_count = count;
  step.first_predecessor = static_cast<std::uint32_t>(schedule_.predecessors.size());
  if (target != nullptr) {
    step.target = static_cast<std::uint32_t>(schedule_.operands.size());
    add_operand(*target, count);
  }
  if (!sources.empty()) {
    step.first_source = static_cast<std::uint32_t>(schedule_.operands.size());
    step.source_count = static_cast<std::uint16_t>(sources.size());
    for (const Chunks& source : sources) add_operand(source, count);
  }
  const StepId id = newest();
  for (const Chunks& source : sources) read(id, source, count);
  if (target != nullptr) {
    write(id, *target, count, kind == StepKind::copy ? &sources[0] : nullptr);
  }
  return step;
}

bool Builder::is_own(const Chunks& chunks) const noexcept {
  return chunks.rank == kNone || chunks.rank == schedule_.rank;
}

void Builder::add_operand(const Chunks& chunks, std::uint32_t count) {
  XYLEM_CHECK(chunks.count == count, chunks.count, count);
  Operand& operand = schedule_.operands.emplace_back();
  operand.chunk = chunks.first;
  operand.buffer = chunks.buffer;
  operand.rank = is_own(chunks) ? schedule_.rank : chunks.rank;
  if (!is_own(chunks)) return;
  const std::size_t size = hazards_[static_cast<int>(chunks.buffer)].size();
  XYLEM_CHECK(chunks.first + count <= size, name(chunks.buffer), chunks.first, count, size);
}

Builder::Hazards& Builder::hazards(Buffer buffer, std::uint32_t chunk) {
  return hazards_[static_cast<int>(buffer)][chunk];
}

Builder::Hazards* Builder::aliased_input_hazards(const Chunks& chunks, std::uint32_t index) {
  if (chunks.buffer != Buffer::output) return nullptr;
  const std::uint32_t chunk = input_of_[chunks.first + index];
  return chunk != kNone ? &hazards(Buffer::input, chunk) : nullptr;
}

Builder::Hazards* Builder::aliased_output_hazards(const Chunks& chunks, std::uint32_t index) {
  if (chunks.buffer != Buffer::input) return nullptr;
  const std::uint32_t chunk = output_of_[chunks.first + index];
  return chunk != kNone ? &hazards(Buffer::output, chunk) : nullptr;
}

// Adds `before` to the predecessors of the newest step, which are in ascending order and without
// duplicates.
void Builder::depend_on(StepId before) {
  Step& step = schedule_.steps.back();
  const auto id = static_cast<StepId>(schedule_.steps.size() - 1);
  if (before == kNone || before == id) return;
  const auto begin = schedule_.predecessors.begin() + step.first_predecessor;
  const auto at = std::lower_bound(begin, schedule_.predecessors.end(), before);
  if (at != schedule_.predecessors.end() && *at == before) return;
  schedule_.predecessors.insert(at, before);
  ++step.predecessor_count;
}

void Builder::depend_on_readers(const Hazards& chunk) {
  for (std::uint32_t at = chunk.last_reader; at != kNone; at = readers_[at].earlier) {
    depend_on(readers_[at].step);
  }
}

void Builder::read(StepId step, const Chunks& chunks, std::uint32_t count) {
  if (!is_own(chunks)) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    Hazards& chunk = hazards(chunks.buffer, chunks.first + i);
    depend_on(chunk.writer);
    if (const Hazards* overlay = aliased_output_hazards(chunks, i))
      depend_on(overlay->in_place_writer);
    if (chunk.last_reader != kNone && readers_[chunk.last_reader].step == step) continue;
    readers_.push_back({step, chunk.last_reader});
    chunk.last_reader = static_cast<std::uint32_t>(readers_.size() - 1);
  }
}

void Builder::write(StepId step,
                    const Chunks& chunks,
                    std::uint32_t count,
                    const Chunks* copied_from) {
  if (!is_own(chunks)) return;
  for (std::uint32_t i = 0; i < count; ++i) {
    Hazards& chunk = hazards(chunks.buffer, chunks.first + i);
    // Every reader already depends on the last writer. So if there are readers, no edge to the
    // writer is needed.
    depend_on_readers(chunk);
    if (chunk.last_reader == kNone) depend_on(chunk.writer);
    chunk.writer = step;
    chunk.last_reader = kNone;
    Hazards* overlaid = aliased_input_hazards(chunks, i);
    const bool void_in_place = overlaid != nullptr && copied_from != nullptr &&
                               copied_from->buffer == Buffer::input && is_own(*copied_from) &&
                               overlaid == &hazards(Buffer::input, copied_from->first + i);
    if (void_in_place) continue;
    chunk.in_place_writer = step;
    if (overlaid == nullptr) continue;
    depend_on_readers(*overlaid);
    overlaid->last_reader = kNone;
  }
}

}  // namespace xylem::collectives
