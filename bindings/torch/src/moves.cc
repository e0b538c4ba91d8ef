// SPDX-License-Identifier: Apache-2.0
//
// Backend's collectives that transfer elements without reducing them.
#include "backend.h"
#include "failure.h"
#include "prepare.h"

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::pytorch {

using c10d::OpType;

namespace {

/// The number of elements for each rank, if the rows of the tensor (dimension 0) are divided by
/// these split sizes, or equally if there are none.
std::vector<std::uint64_t> split_counts(const char* what,
                                        const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits,
                                        int size) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::uint64_t row = (rows == 0 ? 0 : static_cast<std::uint64_t>(tensor.numel() / rows)) *
                            elements_per_item(tensor);
  if (splits.empty()) {
    if (rows % size != 0) {
      refuse(c10::str("all_to_all_single: ", what, " has ", rows, " rows, which ", size,
                      " ranks do not divide: pass split sizes"));
    }
    return std::vector<std::uint64_t>(static_cast<std::size_t>(size),
                                      static_cast<std::uint64_t>(rows / size) * row);
  }
  check_count("all_to_all_single", "split sizes", splits.size(), size);
  std::vector<std::uint64_t> counts;
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(c10::str("all_to_all_single: a split size of ", split));
    sum += split;
    counts.push_back(static_cast<std::uint64_t>(split) * row);
  }
  if (sum != rows) {
    refuse(c10::str("all_to_all_single: the split sizes of ", what, " add up to ", sum,
                    "; its dimension 0 is ", rows));
  }
  return counts;
}

Sides prepare_all_gather(const at::Tensor& output,
                         const at::Tensor& input,
                         int size,
                         StartedCall& begun) {
  check_tensor("all_gather", output);
  check_tensor("all_gather", input);
  check_alike("all_gather", input, output);
  check_parts("all_gather", "input", input, "output", output, size);
  return {transfer_buffer(read_from(input, begun)), transfer_buffer(write_to(output, begun))};
}

/// A prepared all_gather whose output is a list of tensors, which may have different sizes.
struct Gathering {
  Sides sides;
  std::vector<std::uint64_t> counts;
};

Gathering prepare_all_gather(
    const Tensors& outputs, const at::Tensor& input, int rank, int size, StartedCall& begun) {
  check_count("all_gather", "outputs", outputs.size(), size);
  check_tensors("all_gather", outputs);
  check_tensor("all_gather", input);
  check_alike("all_gather", input, outputs.front());
  const at::Tensor& own = outputs[static_cast<std::size_t>(rank)];
  if (own.numel() != input.numel()) {
    refuse(c10::str("all_gather: input of ", input.numel(), " elements, this rank's output of ",
                    own.numel(), "; both must have the same number"));
  }
  const Buffer from = transfer_buffer(read_from(input, begun));
  const Packed to = write_to(outputs, begun);
  return {{from, transfer_buffer(to.flat())}, to.counts(outputs)};
}

xylem::Work all_gather(const Communicator& world, const Gathering& call) {
  return all_equal(call.counts)
             ? world.all_gather(call.sides.input, call.sides.output)
             : world.all_gather_v(call.sides.input, call.sides.output, call.counts);
}

}  // namespace

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  check_root_tensor("broadcast", options.rootTensor);
  const std::uint32_t root = peer("broadcast", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  StartedCall begun;
  const Buffer buffer =
      transfer_buffer(is_root ? read_from(tensor, begun) : write_to(tensor, begun));
  if (is_root) begun.outputs.push_back(tensor);
  const TaskPtr task = make_task(OpType::BROADCAST, "xylem:broadcast", tensors);
  begun.works.push_back(sequences_->collectives_on(tensor, begun).broadcast(buffer, root));
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs,
                                    Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("all_gather", inputs);
  check_count("all_gather", "lists of outputs", outputs.size(), 1);
  StartedCall begun;
  const auto call = prepare_all_gather(outputs.front(), input, getRank(), getSize(), begun);
  const TaskPtr task = make_task(OpType::ALLGATHER, "xylem:all_gather", inputs);
  begun.works.push_back(all_gather(sequences_->collectives_on(input, begun), call));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor& output,
                                          at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  StartedCall begun;
  const Sides sides = prepare_all_gather(output, input, getSize(), begun);
  const Tensors inputs{input};
  const TaskPtr task = make_task(OpType::_ALLGATHER_BASE, "xylem:_all_gather_base", inputs);
  begun.works.push_back(
      sequences_->collectives_on(input, begun).all_gather(sides.input, sides.output));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs,
                                              Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  check_count("all_gather_coalesced", "lists of outputs (one for each rank)", outputs.size(),
              getSize());
  StartedCall begun;
  std::vector<Gathering> calls;
  check_one_device("all_gather_coalesced", inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_all;
    for (const Tensors& of_rank : outputs) {
      check_count("all_gather_coalesced", "outputs of a rank", of_rank.size(),
                  static_cast<std::int64_t>(inputs.size()));
      of_all.push_back(of_rank[i]);
    }
    check_same_elements("all_gather_coalesced", of_all, inputs[i].numel());
    calls.push_back(prepare_all_gather(of_all, inputs[i], getRank(), getSize(), begun));
  }
  const TaskPtr task = make_task(OpType::ALLGATHER_COALESCED, "xylem:all_gather", inputs);
  if (!calls.empty()) {
    const Communicator group = sequences_->collectives_on(inputs.front(), begun);
    for (const Gathering& call : calls) begun.works.push_back(all_gather(group, call));
  }
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs,
                                                          Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  check_count("all_gather_into_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  StartedCall begun;
  std::vector<Sides> calls;
  calls.reserve(outputs.size());
  check_one_device("all_gather_into_tensor_coalesced", inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(prepare_all_gather(outputs[i], inputs[i], getSize(), begun));
  }
  const TaskPtr task = make_task(all_gather_coalesced_type<OpType>(),
                                 "xylem:all_gather_into_tensor_coalesced", inputs);
  if (!calls.empty()) {
    const Communicator group = sequences_->collectives_on(inputs.front(), begun);
    for (const auto& [input, output] : calls) {
      begun.works.push_back(group.all_gather(input, output));
    }
  }
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs,
                                 Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const at::Tensor& input = only("gather", inputs);
  const std::uint32_t root = peer("gather", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  check_count("gather", is_root ? "lists of outputs at the root" : "lists of outputs off the root",
              outputs.size(), is_root ? 1 : 0);
  StartedCall begun;
  const Buffer from = transfer_buffer(read_from(input, begun));
  Buffer to;
  if (is_root) {
    const Tensors& parts = outputs.front();
    check_count("gather", "outputs", parts.size(), getSize());
    check_tensors("gather", parts);
    check_alike("gather", input, parts.front());
    check_same_elements("gather", parts, input.numel());
    to = transfer_buffer(write_to(parts, begun).flat());
  }
  const TaskPtr task = make_task(OpType::GATHER, "xylem:gather", inputs);
  begun.works.push_back(sequences_->collectives_on(input, begun).gather(from, to, root));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output,
                                        at::Tensor& input,
                                        const c10d::GatherOptions& options) {
  check_tensor("gather", input);
  const std::uint32_t root = peer("gather", options.rootRank);
  StartedCall begun;
  const Buffer from = transfer_buffer(read_from(input, begun));
  Buffer to;
  if (getRank() == options.rootRank) {
    check_tensor("gather", output);
    check_alike("gather", input, output);
    check_parts("gather", "input", input, "output", output, getSize());
    to = transfer_buffer(write_to(output, begun));
  }
  const Tensors inputs{input};
  const TaskPtr task = make_task(OpType::GATHER, "xylem:gather", inputs);
  begun.works.push_back(sequences_->collectives_on(input, begun).gather(from, to, root));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::scatter(Tensors& outputs,
                                  std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  const at::Tensor& output = only("scatter", outputs);
  const std::uint32_t root = peer("scatter", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  check_count("scatter", is_root ? "lists of inputs at the root" : "lists of inputs off the root",
              inputs.size(), is_root ? 1 : 0);
  StartedCall begun;
  const Buffer to = transfer_buffer(write_to(output, begun));
  Buffer from;
  if (is_root) {
    const Tensors& parts = inputs.front();
    check_count("scatter", "inputs", parts.size(), getSize());
    check_tensors("scatter", parts);
    check_alike("scatter", parts.front(), output);
    check_same_elements("scatter", parts, output.numel());
    from = transfer_buffer(read_from(parts, begun).flat());
  }
  const TaskPtr task =
      make_task(OpType::SCATTER, "xylem:scatter", is_root ? inputs.front() : Tensors());
  begun.works.push_back(sequences_->collectives_on(output, begun).scatter(from, to, root));
  return submit(task, std::move(begun), options.timeout, is_root ? inputs.front() : Tensors());
}

Backend::WorkPtr Backend::alltoall_base(at::Tensor& output,
                                        at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  check_tensor("all_to_all_single", output);
  check_tensor("all_to_all_single", input);
  check_alike("all_to_all_single", input, output);
  // As with gloo and nccl, each rank's part is a contiguous range of memory.
  if (!input.is_contiguous() || !output.is_contiguous()) {
    refuse(c10::str("all_to_all_single: Tensors must be contiguous; the ",
                    input.is_contiguous() ? "output" : "input", " is not: call .contiguous()"));
  }
  const bool is_even = output_splits.empty() && input_splits.empty();
  if (is_even && output.numel() != input.numel()) {
    refuse(c10::str("all_to_all_single: input of ", input.numel(), " elements, output of ",
                    output.numel(), "; without split sizes both must have the same number"));
  }
  const auto given = split_counts("the input", input, input_splits, getSize());
  const auto taken = split_counts("the output", output, output_splits, getSize());
  StartedCall begun;
  // Parts of different sizes cannot be exchanged in place.
  const bool is_in_place = !is_even && input.is_alias_of(output);
  const Buffer from = transfer_buffer(read_from(is_in_place ? input.clone() : input, begun));
  const Buffer to = transfer_buffer(write_to(output, begun));
  const Tensors inputs{input};
  const TaskPtr task = make_task(OpType::ALLTOALL_BASE, "xylem:all_to_all", inputs);
  const Communicator group = sequences_->collectives_on(input, begun);
  begun.works.push_back(is_even ? group.all_to_all(from, to)
                                : group.all_to_all_v(from, given, to, taken));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs,
                                   Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  check_count("all_to_all", "inputs", inputs.size(), getSize());
  check_count("all_to_all", "outputs", outputs.size(), getSize());
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  check_alike("all_to_all", inputs.front(), outputs.front());
  StartedCall begun;
  const Packed from = read_from(inputs, begun), to = write_to(outputs, begun);
  const bool is_in_place = from.flat().is_alias_of(to.flat());
  const at::Tensor source = is_in_place ? read_from(from.flat().clone(), begun) : from.flat();
  const TaskPtr task = make_task(OpType::ALLTOALL, "xylem:all_to_all", inputs);
  begun.works.push_back(sequences_->collectives_on(source, begun)
                            .all_to_all_v(transfer_buffer(source), from.counts(inputs),
                                          transfer_buffer(to.flat()), to.counts(outputs)));
  return submit(task, std::move(begun), options.timeout, inputs);
}

}  // namespace xylem::pytorch
