// SPDX-License-Identifier: Apache-2.0
//
// The next slice of a step may run when three conditions hold: its dependencies have completed, all
// earlier steps on its lane have completed, and the slot, message or signal that it needs is
// available. Running a slice reads, computes and writes at once.
#include "model/executor.h"

#include "xylem/base/hash.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace xylem::collectives::model {
namespace {

constexpr std::size_t kSliceElements = 2;
constexpr std::uint64_t kFinished = 0x66696e6973686564;

Element contribution(std::uint32_t rank, std::uint32_t block, std::size_t index) {
  const std::uint64_t value = combine(combine(combine(7, rank), block), index);
  return {value, mix(value), true};
}

Element combined(const std::vector<Element>& sources, bool finish) {
  Element result{0, sources.size() > 1 ? sources.size() : 0, true};
  for (const Element& source : sources) {
    result.sum += source.sum;
    result.bits = sources.size() > 1 ? combine(result.bits, source.bits) : source.bits;
    result.written &= source.written;
  }
  if (finish)
    result = {mix(result.sum + kFinished), combine(result.bits, kFinished), result.written};
  return result;
}

}  // namespace

Executor::Executor(std::span<const Schedule> ranks) : ranks_(ranks) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint8_t>, std::uint32_t> lane_ids;
  for (const Schedule& schedule : ranks) {
    pipelines_.push_back(pipeline(schedule));
    first_step_.push_back(static_cast<std::uint32_t>(steps_.size()));
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      StepState state{schedule.rank, id, kNone, 0, 1, 0, 0};
      const bool outgoing = step.kind == StepKind::send || step.kind == StepKind::signal;
      const bool incoming = step.kind == StepKind::recv || step.kind == StepKind::wait;
      if (outgoing || incoming) {
        const std::uint32_t from = outgoing ? schedule.rank : step.peer;
        const std::uint32_t to = outgoing ? step.peer : schedule.rank;
        const auto next = static_cast<std::uint32_t>(lane_ids.size());
        state.lane = lane_ids.try_emplace({from, to, step.channel}, next).first->second;
        lanes_.resize(lane_ids.size());
        Lane& lane = lanes_[state.lane];
        switch (step.kind) {
          case StepKind::send: state.turn = lane.senders++; break;
          case StepKind::recv:
            state.turn = lane.receivers++;
            lane.recv_steps.push_back(static_cast<std::uint32_t>(steps_.size()));
            break;
          case StepKind::signal: state.turn = lane.signals++; break;
          default: state.turn = lane.waits++; break;
        }
      }
      steps_.push_back(state);
    }
  }
}

void Executor::draw_setting(Random& random) {
  slots_ = 1 + random() % 3;
  window_ = 1 + static_cast<std::uint32_t>(random() % 3);
  rendezvous_ = random() % 3 == 0;
  const std::size_t longest = random() % 4 == 0 ? 17 : 5;
  block_sizes_.resize(ranks_[0].blocks);
  for (std::size_t& size : block_sizes_) size = random() % (longest + 1);
  memory_.assign(ranks_.size(), {});
  for (Memory& memory : memory_) {
    memory.in_place = allows_in_place(ranks_[0].shape.collective) && random() % 2 == 0;
  }
  for (Lane& lane : lanes_) {
    lane.sent = lane.received = lane.signalled = lane.waited = 0;
    lane.in_flight.clear();
  }
  for (StepState& state : steps_) {
    state.done = 0;
    state.slices = slices_of(state);
    state.priority = static_cast<std::uint32_t>(random());
  }
}

void Executor::fill_memory() {
  for (const Schedule& schedule : ranks_) {
    Memory& memory = memory_[schedule.rank];
    for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
      const auto which = static_cast<std::size_t>(buffer);
      memory.starts[which] = {0};
      const std::uint32_t chunks = chunk_count(schedule, schedule.rank, buffer);
      for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const bool ring = buffer == Buffer::scratch && pipelines_[schedule.rank].windowed[chunk];
        const std::size_t size = block_sizes_[block_of(schedule, {schedule.rank, chunk, buffer})];
        memory.starts[which].push_back(memory.starts[which].back() +
                                       (ring ? window_ * kSliceElements : size));
      }
      memory.cells[which].assign(memory.starts[which].back(), Element());
    }
    for (std::uint32_t chunk = 0; chunk + 1 < memory.starts[0].size(); ++chunk) {
      const std::uint32_t block = block_of(schedule, {schedule.rank, chunk, Buffer::input});
      for (std::size_t i = 0; i < block_sizes_[block]; ++i) {
        memory.cells[0][memory.starts[0][chunk] + i] = contribution(schedule.rank, block, i);
      }
    }
  }
}

std::uint32_t Executor::own_block(const Schedule& schedule,
                                  const Step& step,
                                  std::uint32_t index) const {
  const bool by_source = step.kind == StepKind::send || step.kind == StepKind::put;
  Operand operand = schedule.operands[by_source ? step.first_source : step.target];
  operand.chunk += index;
  return block_of(schedule, operand);
}

std::size_t Executor::step_elements(const StepState& state) const {
  const Schedule& schedule = ranks_[state.rank];
  const Step& step = schedule.steps[state.id];
  std::size_t total = 0;
  for (std::uint32_t i = 0; i < step.chunk_count; ++i)
    total += block_sizes_[own_block(schedule, step, i)];
  return total;
}

std::uint32_t Executor::slices_of(const StepState& state) const {
  const std::size_t slices = (step_elements(state) + kSliceElements - 1) / kSliceElements;
  return static_cast<std::uint32_t>(std::max<std::size_t>(slices, 1));
}

bool Executor::edges_met(const StepState& state) const {
  const Pipeline& pipeline = pipelines_[state.rank];
  for (std::uint32_t e = pipeline.first_edge[state.id]; e < pipeline.first_edge[state.id + 1];
       ++e) {
    const Edge& edge = pipeline.edges[e];
    const StepState& before = steps_[first_step_[state.rank] + edge.before];
    switch (edge.kind) {
      case EdgeKind::slice:
        if (before.done <= state.done) return false;
        break;
      case EdgeKind::whole:
        if (before.done < before.slices) return false;
        break;
      case EdgeKind::lag:
        if (state.done >= window_ && before.done <= state.done - window_) return false;
        break;
    }
  }
  return true;
}

bool Executor::is_enabled(const StepState& state) const {
  if (!edges_met(state)) return false;
  const Step& step = ranks_[state.rank].steps[state.id];
  if (state.lane == kNone) return true;
  const Lane& lane = lanes_[state.lane];
  switch (step.kind) {
    case StepKind::send: {
      if (lane.sent != state.turn) return false;
      if (!rendezvous_) return lane.in_flight.size() < slots_;
      const StepState& receiver = steps_[lane.recv_steps[state.turn]];
      return lane.received == state.turn && receiver.done == state.done && edges_met(receiver) &&
             lane.in_flight.empty();
    }
    case StepKind::recv: return lane.received == state.turn && !lane.in_flight.empty();
    case StepKind::signal: return lane.signalled == state.turn;
    case StepKind::wait: return lane.waited == state.turn && lane.signalled >= step.value;
    default: return true;
  }
}

// The element at `position` of an operand of `count` chunks. `slice` selects the slot if the
// operand is a ring.
Element& Executor::cell(const Operand& operand,
                        std::uint32_t count,
                        std::uint32_t slice,
                        std::size_t position) {
  const Schedule& schedule = ranks_[operand.rank];
  Memory& memory = memory_[operand.rank];
  const auto which = static_cast<std::size_t>(operand.buffer);
  if (operand.buffer == Buffer::scratch && pipelines_[operand.rank].windowed[operand.chunk]) {
    const std::size_t in_slice = position - slice * kSliceElements;
    return memory.cells[which][memory.starts[which][operand.chunk] +
                               slice % window_ * kSliceElements + in_slice];
  }
  std::uint32_t chunk = operand.chunk;
  for (; chunk < operand.chunk + count; ++chunk) {
    const std::size_t size =
        block_sizes_[block_of(schedule, {operand.rank, chunk, operand.buffer})];
    if (position < size) break;
    position -= size;
  }
  if (operand.buffer == Buffer::output && memory.in_place) {
    if (const auto input = aliased_input(schedule.shape, operand.rank, chunk)) {
      return memory.cells[0][memory.starts[0][*input] + position];
    }
  }
  return memory.cells[which][memory.starts[which][chunk] + position];
}

std::vector<Element> Executor::read(const StepState& state, const Operand& operand) {
  const std::uint32_t count = ranks_[state.rank].steps[state.id].chunk_count;
  const std::size_t begin = std::size_t{state.done} * kSliceElements;
  const std::size_t end = std::min(begin + kSliceElements, step_elements(state));
  std::vector<Element> data;
  for (std::size_t i = begin; i < end; ++i) data.push_back(cell(operand, count, state.done, i));
  return data;
}

void Executor::write(const StepState& state,
                     const Operand& operand,
                     const std::vector<Element>& data) {
  const std::uint32_t count = ranks_[state.rank].steps[state.id].chunk_count;
  const std::size_t begin = std::size_t{state.done} * kSliceElements;
  const std::size_t end = std::min(begin + kSliceElements, step_elements(state));
  if (begin + data.size() != std::max(begin, end)) {
    problem_ = "a message of the wrong size";
    return;
  }
  for (std::size_t i = begin; i < end; ++i) cell(operand, count, state.done, i) = data[i - begin];
}

std::vector<Element> Executor::reduce(const StepState& state) {
  const Schedule& schedule = ranks_[state.rank];
  const Step& step = schedule.steps[state.id];
  std::vector<std::vector<Element>> sources;
  for (const Operand& source : schedule.sources(step)) sources.push_back(read(state, source));
  std::vector<Element> result, column;
  for (std::size_t i = 0; i < sources[0].size(); ++i) {
    column.clear();
    for (const auto& source : sources) column.push_back(source[i]);
    result.push_back(combined(column, step.finish && ranks_.size() > 1));
  }
  return result;
}

void Executor::perform(StepState& state) {
  const Schedule& schedule = ranks_[state.rank];
  const Step& step = schedule.steps[state.id];
  switch (step.kind) {
    case StepKind::send:
      lanes_[state.lane].in_flight.push_back({read(state, schedule.operands[step.first_source])});
      break;
    case StepKind::recv: {
      Lane& lane = lanes_[state.lane];
      const Message message = std::move(lane.in_flight.front());
      lane.in_flight.pop_front();
      write(state, schedule.operands[step.target], message.data);
      break;
    }
    case StepKind::copy:
    case StepKind::put:
      write(state, schedule.operands[step.target],
            read(state, schedule.operands[step.first_source]));
      break;
    case StepKind::reduce: write(state, schedule.operands[step.target], reduce(state)); break;
    case StepKind::signal:
    case StepKind::wait: break;
  }
  if (++state.done == state.slices) finish_step(state);
}

void Executor::finish_step(StepState& state) {
  if (state.lane == kNone) return;
  Lane& lane = lanes_[state.lane];
  switch (ranks_[state.rank].steps[state.id].kind) {
    case StepKind::send: ++lane.sent; break;
    case StepKind::recv: ++lane.received; break;
    case StepKind::signal: ++lane.signalled; break;
    default: ++lane.waited; break;
  }
}

std::optional<std::string> Executor::run(std::uint64_t seed) {
  Random random(seed);
  draw_setting(random);
  fill_memory();
  problem_.clear();
  std::vector<StepState*> pending;
  for (StepState& state : steps_) pending.push_back(&state);
  // Half of the runs always prefer some steps, so that the other steps are delayed as long as
  // possible.
  const bool by_priority = random() % 2 == 0;
  std::sort(pending.begin(), pending.end(),
            [](const StepState* a, const StepState* b) { return a->priority < b->priority; });
  while (!pending.empty()) {
    const std::size_t start = by_priority ? 0 : random() % pending.size();
    std::size_t tried = 0;
    std::size_t at = start;
    while (tried < pending.size() && !is_enabled(*pending[at])) {
      ++tried;
      at = at + 1 == pending.size() ? 0 : at + 1;
    }
    if (tried == pending.size())
      return "stuck with " + std::to_string(pending.size()) + " steps pending";
    StepState& state = *pending[at];
    perform(state);
    if (!problem_.empty()) return problem_;
    if (state.done == state.slices)
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return check_results();
}

Element Executor::expected(std::uint32_t rank, std::uint32_t chunk, std::size_t index) const {
  const Shape& shape = ranks_[0].shape;
  const std::uint32_t n = shape.ranks;
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter: {
      const std::uint32_t block = shape.collective == Collective::reduce_scatter ? rank : chunk;
      Element sum{0, 0, true};
      for (std::uint32_t from = 0; from < n; ++from)
        sum.sum += contribution(from, block, index).sum;
      if (n > 1) sum.sum = mix(sum.sum + kFinished);
      return sum;
    }
    case Collective::broadcast: return contribution(shape.root, chunk, index);
    case Collective::all_gather:
    case Collective::gather: return contribution(chunk, chunk, index);
    case Collective::scatter: return contribution(shape.root, rank, index);
    case Collective::all_to_all: return contribution(chunk, chunk * n + rank, index);
    case Collective::barrier: break;
  }
  return {};
}

std::optional<std::string> Executor::check_results() {
  const Shape& shape = ranks_[0].shape;
  for (const Schedule& schedule : ranks_) {
    const std::uint32_t rank = schedule.rank;
    for (std::uint32_t chunk = 0; chunk < chunk_count(schedule, rank, Buffer::output); ++chunk) {
      const std::size_t size = block_sizes_[block_of(schedule, {rank, chunk, Buffer::output})];
      for (std::size_t i = 0; i < size; ++i) {
        Element found = cell({rank, chunk, Buffer::output}, 1, 0, i);
        const Element wanted = expected(rank, chunk, i);
        const bool same_bits = shape.collective != Collective::all_reduce ||
                               found.bits == cell({0, chunk, Buffer::output}, 1, 0, i).bits;
        if (reduces(shape.collective)) found.bits = wanted.bits;
        if (found != wanted || !same_bits) {
          return "wrong output[" + std::to_string(chunk) + "] at rank " + std::to_string(rank);
        }
      }
    }
    for (std::uint32_t chunk = 0; chunk < chunk_count(schedule, rank, Buffer::input); ++chunk) {
      const std::uint32_t block = block_of(schedule, {rank, chunk, Buffer::input});
      for (std::size_t i = 0; i < block_sizes_[block] && !memory_[rank].in_place; ++i) {
        if (cell({rank, chunk, Buffer::input}, 1, 0, i) != contribution(rank, block, i)) {
          return "input changed at rank " + std::to_string(rank);
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace xylem::collectives::model
