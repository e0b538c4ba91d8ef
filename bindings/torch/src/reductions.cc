// SPDX-License-Identifier: Apache-2.0
//
// Backend's collectives that reduce.
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

Sides prepare_all_reduce(const at::Tensor& tensor, const ReduceOp& op, StartedCall& begun) {
  const Buffer buffer = reduction_buffer(update(tensor, begun), op);
  return {buffer, buffer};
}

Sides prepare_reduce_scatter(const at::Tensor& output,
                             const at::Tensor& input,
                             int size,
                             const ReduceOp& op,
                             StartedCall& begun) {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  check_alike("reduce_scatter", input, output);
  check_parts("reduce_scatter", "output", output, "input", input, size);
  return {reduction_buffer(read_from(input, begun), op),
          reduction_buffer(write_to(output, begun), op)};
}

}  // namespace

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const at::Tensor& tensor = only("all_reduce", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  const Sides sides = prepare_all_reduce(tensor, op, begun);
  const TaskPtr task = make_task(OpType::ALLREDUCE, "xylem:all_reduce", tensors);
  begun.works.push_back(
      sequences_->collectives_on(tensor, begun).all_reduce(sides.input, sides.output, op));
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  check_count("all_reduce", "tensors", tensors.size(), 1);
  {
    const Lock lock(coalescing_);
    if (coalesced_) refuse("all_reduce of sparse tensors cannot be coalesced: call it outside");
  }
  const ReduceOp op = reduction(options.reduceOp);
  check_sparse(tensors.front(), op);
  SparseTask::Call call{tensors.front(), op.op == RedOp::avg, ++sequences_->here().sequence,
                        limit_of(options.timeout), options.timeout != c10d::kUnsetTimeout};
  // The title is the same as for dense tensors, since torch's analyzer of flight records accepts no
  // other.
  call.record = Recorder::get().begin(label(),
                                      {"xylem:all_reduce", OpType::_ALLREDUCE_SPARSE, call.sequence,
                                       messages_, getRank(), -1, call.timeout},
                                      tensors, tensors);
  const std::uint64_t record = call.record;
  try {
    return sequences_->here().sparse->reduce(std::move(call));
  } catch (...) {
    Recorder::get().end(record, false);
    throw;
  }
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  check_tensors("all_reduce_coalesced", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  std::vector<Sides> calls;
  calls.reserve(tensors.size());
  const std::vector<bool> overlaps = overlapping(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!overlaps[i]) {
      calls.push_back(prepare_all_reduce(tensors[i], op, begun));
    } else {
      // Operations work in place. This tensor overlaps another one, so it needs memory of its own.
      const Buffer apart = reduction_buffer(update_apart(tensors[i], begun), op);
      calls.push_back({apart, apart});
    }
  }
  const TaskPtr task = make_task(OpType::ALLREDUCE_COALESCED, "xylem:all_reduce", tensors);
  const Communicator group = sequences_->collectives_on(tensors.front(), begun);
  for (const auto& [input, output] : calls) {
    begun.works.push_back(group.all_reduce(input, output, op));
  }
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  check_root_tensor("reduce", options.rootTensor);
  const std::uint32_t root = peer("reduce", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  const Buffer buffer =
      reduction_buffer(is_root ? update(tensor, begun) : read_from(tensor, begun), op);
  if (!is_root) begun.outputs.push_back(tensor);
  const TaskPtr task = make_task(OpType::REDUCE, "xylem:reduce", tensors);
  begun.works.push_back(sequences_->collectives_on(tensor, begun)
                            .reduce(buffer, is_root ? buffer : Buffer(), op, root));
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output,
                                               at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  const Sides sides = prepare_reduce_scatter(output, input, getSize(), op, begun);
  const Tensors inputs{input};
  const TaskPtr task =
      make_task(OpType::_REDUCE_SCATTER_BASE, "xylem:_reduce_scatter_base", inputs);
  begun.works.push_back(
      sequences_->collectives_on(output, begun).reduce_scatter(sides.input, sides.output, op));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  std::vector<Sides> calls;
  calls.reserve(outputs.size());
  check_one_device("reduce_scatter_tensor_coalesced", outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(prepare_reduce_scatter(outputs[i], inputs[i], getSize(), op, begun));
  }
  const TaskPtr task = make_task(reduce_scatter_coalesced_type<OpType>(),
                                 "xylem:reduce_scatter_tensor_coalesced", inputs);
  if (!calls.empty()) {
    const Communicator group = sequences_->collectives_on(outputs.front(), begun);
    for (const auto& [input, output] : calls) {
      begun.works.push_back(group.reduce_scatter(input, output, op));
    }
  }
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs,
                                         std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only("reduce_scatter", outputs);
  check_count("reduce_scatter", "lists of inputs", inputs.size(), 1);
  const Tensors& parts = inputs.front();
  check_count("reduce_scatter", "inputs", parts.size(), getSize());
  check_tensors("reduce_scatter", parts);
  check_alike("reduce_scatter", parts.front(), output);
  const at::Tensor& own = parts[static_cast<std::size_t>(getRank())];
  if (own.numel() != output.numel()) {
    refuse(c10::str("reduce_scatter: output of ", output.numel(),
                    " elements, this rank's input of ", own.numel(),
                    "; both must have the same number"));
  }
  const ReduceOp op = reduction(options.reduceOp);
  StartedCall begun;
  const Packed packed = read_from(parts, begun);
  const Buffer from = reduction_buffer(packed.flat(), op),
               to = reduction_buffer(write_to(output, begun), op);
  const auto counts = packed.counts(parts);
  const TaskPtr task = make_task(OpType::REDUCE_SCATTER, "xylem:reduce_scatter", parts);
  const Communicator group = sequences_->collectives_on(output, begun);
  begun.works.push_back(all_equal(counts) ? group.reduce_scatter(from, to, op)
                                          : group.reduce_scatter_v(from, to, counts, op));
  return submit(task, std::move(begun), options.timeout, parts);
}

}  // namespace xylem::pytorch
