// SPDX-License-Identifier: Apache-2.0
#include "conformance/run_case.h"

#include <sstream>

namespace xylem::test {
namespace {

using collectives::Collective;

constexpr std::size_t kGuard = 64;
constexpr std::byte kPoison{0x5a};

Work call(const Communicator& comm, const Case& one, ConstBuffer input, Buffer output) {
  const std::uint32_t ranks = comm.size();
  const ReduceOp op = one.op == RedOp::premul_sum ? ReduceOp::premul_sum(premul_factor(comm.rank()))
                                                  : ReduceOp(one.op);
  std::vector<std::uint64_t> counts, recv_counts;
  for (std::uint32_t part = 0; part < ranks && one.uneven; ++part) {
    if (one.collective == Collective::all_to_all) {
      counts.push_back(uneven_count(one, comm.rank(), part));
      recv_counts.push_back(uneven_count(one, part, comm.rank()));
    } else {
      counts.push_back(uneven_count(one, part));
    }
  }
  switch (one.collective) {
    case Collective::all_reduce: return comm.all_reduce(input, output, op);
    case Collective::reduce: return comm.reduce(input, output, op, one.root);
    case Collective::broadcast: return comm.broadcast(input, output, one.root);
    case Collective::all_gather:
      return one.uneven ? comm.all_gather_v(input, output, counts) : comm.all_gather(input, output);
    case Collective::reduce_scatter:
      return one.uneven ? comm.reduce_scatter_v(input, output, counts, op)
                        : comm.reduce_scatter(input, output, op);
    case Collective::all_to_all:
      return one.uneven ? comm.all_to_all_v(input, counts, output, recv_counts)
                        : comm.all_to_all(input, output);
    case Collective::gather: return comm.gather(input, output, one.root);
    case Collective::scatter: return comm.scatter(input, output, one.root);
    case Collective::barrier: break;
  }
  return comm.barrier();
}

}  // namespace

RunningCase::Space RunningCase::make_space(const Case& one,
                                           std::uint32_t rank,
                                           std::uint64_t inputs,
                                           std::uint64_t outputs) {
  const std::size_t size = size_of(one.type);
  Space memory;
  const std::uint64_t whole = one.in_place ? std::max(inputs, outputs) : outputs;
  memory.output_space.assign(whole * size + 2 * kGuard, kPoison);
  memory.output = memory.input = memory.output_space.data() + kGuard;
  if (!one.in_place) {
    memory.input_space.assign(inputs * size + 1, kPoison);
    memory.input = memory.input_space.data();
    return memory;
  }
  std::uint64_t before = rank * one.count;
  if (one.uneven) {
    before = 0;
    for (std::uint32_t part = 0; part < rank; ++part) before += uneven_count(one, part);
  }
  const bool at_part = !has_root(one.collective) || rank == one.root;
  switch (one.collective) {
    case Collective::all_gather:
    case Collective::gather:
      if (at_part) memory.input += before * size;
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      if (at_part) memory.output += before * size;
      break;
    default: break;
  }
  return memory;
}

RunningCase::RunningCase(const Communicator& comm, const Case& one, const BuffersOnDevice* device)
    : one_(one),
      ranks_(comm.size()),
      rank_(comm.rank()),
      device_(device),
      inputs_(input_elements(one, ranks_, rank_)),
      outputs_(output_elements(one, ranks_, rank_)),
      memory_(make_space(one, rank_, inputs_, outputs_)) {
  const std::size_t size = size_of(one.type);
  for (std::uint64_t i = 0; i < inputs_; ++i)
    store(one.type, memory_.input + i * size, input_value(one, rank_, i));
  input_before_ = memory_.input_space;
  ConstBuffer input(memory_.input, inputs_, one.type);
  Buffer output(memory_.output, outputs_, one.type);
  if (device_ != nullptr) {
    output_there_ = device_->memory.allocate(memory_.output_space.size());
    input_there_ = device_->memory.allocate(memory_.input_space.size());
    output = {output_there_ + (memory_.output - memory_.output_space.data()), outputs_, one.type};
    input = {
        one.in_place ? output_there_ + (memory_.input - memory_.output_space.data()) : input_there_,
        inputs_, one.type};
    output.memory = input.memory = device_->kind;
    device_->memory.write(output_there_, memory_.output_space.data(), memory_.output_space.size());
    device_->memory.write(input_there_, memory_.input_space.data(), memory_.input_space.size());
  }
  work_ = call(comm, one, input, output);
}

std::string RunningCase::finish() {
  const std::size_t size = size_of(one_.type);
  const Status status = work_.wait();
  if (device_ != nullptr) {
    device_->memory.read(memory_.output_space.data(), output_there_, memory_.output_space.size());
    device_->memory.read(memory_.input_space.data(), input_there_, memory_.input_space.size());
  }
  std::ostringstream wrong;
  if (!status) wrong << status.to_string();
  for (std::uint64_t i = 0; i < outputs_ && status; ++i) {
    const double got = load(one_.type, memory_.output + i * size);
    const double expected = expected_value(one_, ranks_, rank_, i);
    if (got == expected) continue;
    wrong << "element " << i << " is " << got << ", not " << expected;
    break;
  }
  if (memory_.input_space != input_before_) wrong << "; the input was written";
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (memory_.output_space[i] != kPoison ||
        memory_.output_space[memory_.output_space.size() - 1 - i] != kPoison) {
      wrong << "; memory beside the output was written";
      break;
    }
  }
  if (wrong.str().empty()) return {};
  std::ostringstream out;
  out << "rank " << rank_ << " of " << ranks_ << ": " << describe(one_) << ": " << wrong.str();
  return out.str();
}

std::string run_case(const Communicator& comm, const Case& one, const BuffersOnDevice* device) {
  std::string wrong = RunningCase(comm, one, device).finish();
  if (device != nullptr) device->memory.clear();
  return wrong;
}

std::vector<const collectives::Planner*> all_planners() {
  std::vector<const collectives::Planner*> all;
  for (const auto& planner : collectives::planners()) all.push_back(&planner);
  return all;
}

}  // namespace xylem::test
