// SPDX-License-Identifier: Apache-2.0
#include "conformance/run_case.h"

#include <sstream>

namespace xylem::test {
namespace {

using collectives::Collective;

constexpr std::size_t kGuard = 64;
constexpr std::byte kPoison{0x5a};

/// The memory of one rank: an output between guards, and an input. If the call is in place, the
/// input is a part of the output.
struct Space {
  std::vector<std::byte> output_space, input_space;
  std::byte* output = nullptr;
  std::byte* input = nullptr;
};

Space make_space(const Case& one,
                 std::uint32_t ranks,
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
  (void)ranks;
  return memory;
}

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

std::string run_case(const Communicator& comm, const Case& one, const BuffersOnDevice* device) {
  const std::uint32_t ranks = comm.size(), rank = comm.rank();
  const std::uint64_t inputs = input_elements(one, ranks, rank),
                      outputs = output_elements(one, ranks, rank);
  const std::size_t size = size_of(one.type);
  Space memory = make_space(one, ranks, rank, inputs, outputs);
  for (std::uint64_t i = 0; i < inputs; ++i)
    store(one.type, memory.input + i * size, input_value(one, rank, i));
  const std::vector<std::byte> input_before = memory.input_space;
  ConstBuffer input(memory.input, inputs, one.type);
  Buffer output(memory.output, outputs, one.type);
  std::byte *output_there = nullptr, *input_there = nullptr;
  if (device != nullptr) {
    output_there = device->memory.allocate(memory.output_space.size());
    input_there = device->memory.allocate(memory.input_space.size());
    output = {output_there + (memory.output - memory.output_space.data()), outputs, one.type};
    input = {
        one.in_place ? output_there + (memory.input - memory.output_space.data()) : input_there,
        inputs, one.type};
    output.memory = input.memory = device->kind;
    device->memory.write(output_there, memory.output_space.data(), memory.output_space.size());
    device->memory.write(input_there, memory.input_space.data(), memory.input_space.size());
  }
  const Status status = call(comm, one, input, output).wait();
  if (device != nullptr) {
    device->memory.read(memory.output_space.data(), output_there, memory.output_space.size());
    device->memory.read(memory.input_space.data(), input_there, memory.input_space.size());
    device->memory.clear();
  }
  std::ostringstream wrong;
  if (!status) wrong << status.to_string();
  for (std::uint64_t i = 0; i < outputs && status; ++i) {
    const double got = load(one.type, memory.output + i * size);
    const double expected = expected_value(one, ranks, rank, i);
    if (got == expected) continue;
    wrong << "element " << i << " is " << got << ", not " << expected;
    break;
  }
  if (memory.input_space != input_before) wrong << "; the input was written";
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (memory.output_space[i] != kPoison ||
        memory.output_space[memory.output_space.size() - 1 - i] != kPoison) {
      wrong << "; memory beside the output was written";
      break;
    }
  }
  if (wrong.str().empty()) return {};
  std::ostringstream out;
  out << "rank " << rank << " of " << ranks << ": " << describe(one) << ": " << wrong.str();
  return out.str();
}

std::vector<const collectives::Planner*> all_planners() {
  std::vector<const collectives::Planner*> all;
  for (const auto& planner : collectives::planners()) all.push_back(&planner);
  return all;
}

}  // namespace xylem::test
