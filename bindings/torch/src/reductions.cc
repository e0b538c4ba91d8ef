// SPDX-License-Identifier: Apache-2.0
//
// Backend's collectives that reduce.
#include "backend.h"
#include "failure.h"
#include "prepare.h"
#include "sparse.h"

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::pytorch {

using c10d::OpType;

namespace {

InOut prepare_all_reduce(const at::Tensor& tensor, const ReduceOp& op, Launch& launch) {
  const Buffer buffer = reduced(update(tensor, launch), op);
  return {buffer, buffer};
}

InOut prepare_reduce_scatter(const at::Tensor& output,
                             const at::Tensor& input,
                             int size,
                             const ReduceOp& op,
                             Launch& launch) {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  check_alike("reduce_scatter", input, output);
  check_parts("reduce_scatter", "output", output, "input", input, size);
  return {reduced(read_from(input, launch), op), reduced(write_to(output, launch), op)};
}

}  // namespace

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const at::Tensor& tensor = only("all_reduce", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  Launch launch;
  const InOut buffers = prepare_all_reduce(tensor, op, launch);
  const TaskPtr task = open(OpType::ALLREDUCE, "xylem:all_reduce", tensors);
  launch.works.push_back(
      group_for(tensor.device(), launch).all_reduce(buffers.input, buffers.output, op));
  return submit(task, std::move(launch), options.timeout, tensors);
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  check_count("all_reduce", "tensors", tensors.size(), 1);
  {
    const std::lock_guard lock(coalescing_);
    if (coalesced_) refuse("all_reduce of sparse tensors cannot be coalesced: call it outside");
  }
  const ReduceOp op = reduction(options.reduceOp);
  check_sparse(tensors.front(), op);
  const auto call = std::make_shared<SparseCall>(tensors.front(), op.op == RedOp::avg,
                                                 limit_of(options.timeout), tasks_->note());
  const auto make_step = [this] {
    return c10::make_intrusive<Task>(getRank(), OpType::_ALLREDUCE_SPARSE, nullptr, tasks_,
                                     Tensors());
  };
  const TaskPtr task = open(OpType::_ALLREDUCE_SPARSE, "xylem:all_reduce", tensors);
  const TaskPtr gather = make_step(), exchange = make_step();
  Launch launch;
  const Communicator group = group_for(at::kCPU, launch);
  constexpr std::uint32_t kTags = 1U << 31U;  // Tags of the program are below this.
  launch = call->gather_shapes(group, kTags + sparse_calls_++ % kTags);
  gather->then(exchange,
               [call, messages = membership_.group] { return call->exchange_entries(messages); });
  exchange->then(task, [call] { return call->add(); });
  return submit(task, std::move(launch), options.timeout, tensors);
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  check_tensors("all_reduce_coalesced", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  Launch launch;
  std::vector<InOut> calls;
  calls.reserve(tensors.size());
  const std::vector<bool> overlaps = overlapping(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!overlaps[i]) {
      calls.push_back(prepare_all_reduce(tensors[i], op, launch));
    } else {
      // Operations work in place. This tensor overlaps another one, so it needs memory of its own.
      const Buffer apart = reduced(update_apart(tensors[i], launch), op);
      calls.push_back({apart, apart});
    }
  }
  const TaskPtr task = open(OpType::ALLREDUCE_COALESCED, "xylem:all_reduce", tensors);
  const Communicator group = group_for(tensors.front().device(), launch);
  for (const auto& [input, output] : calls) {
    launch.works.push_back(group.all_reduce(input, output, op));
  }
  return submit(task, std::move(launch), options.timeout, tensors);
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  check_root_tensor("reduce", options.rootTensor);
  const std::uint32_t root = peer("reduce", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  const ReduceOp op = reduction(options.reduceOp);
  Launch launch;
  const Buffer buffer = reduced(is_root ? update(tensor, launch) : read_from(tensor, launch), op);
  if (!is_root) launch.outputs.push_back(tensor);
  const TaskPtr task = open(OpType::REDUCE, "xylem:reduce", tensors);
  launch.works.push_back(
      group_for(tensor.device(), launch).reduce(buffer, is_root ? buffer : Buffer(), op, root));
  return submit(task, std::move(launch), options.timeout, tensors);
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output,
                                               at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const ReduceOp op = reduction(options.reduceOp);
  Launch launch;
  const InOut buffers = prepare_reduce_scatter(output, input, getSize(), op, launch);
  const Tensors inputs{input};
  const TaskPtr task = open(OpType::_REDUCE_SCATTER_BASE, "xylem:_reduce_scatter_base", inputs);
  launch.works.push_back(
      group_for(output.device(), launch).reduce_scatter(buffers.input, buffers.output, op));
  return submit(task, std::move(launch), options.timeout, inputs);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  const ReduceOp op = reduction(options.reduceOp);
  Launch launch;
  std::vector<InOut> calls;
  calls.reserve(outputs.size());
  check_one_device("reduce_scatter_tensor_coalesced", outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(prepare_reduce_scatter(outputs[i], inputs[i], getSize(), op, launch));
  }
  const TaskPtr task = open(reduce_scatter_coalesced_type<OpType>(),
                            "xylem:reduce_scatter_tensor_coalesced", inputs);
  if (!calls.empty()) {
    const Communicator group = group_for(outputs.front().device(), launch);
    for (const auto& [input, output] : calls) {
      launch.works.push_back(group.reduce_scatter(input, output, op));
    }
  }
  return submit(task, std::move(launch), options.timeout, inputs);
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
  Launch launch;
  const Packed packed = read_from(parts, launch);
  const Buffer from = reduced(packed.flat(), op), to = reduced(write_to(output, launch), op);
  const auto counts = packed.counts(parts);
  const TaskPtr task = open(OpType::REDUCE_SCATTER, "xylem:reduce_scatter", parts);
  const Communicator group = group_for(output.device(), launch);
  launch.works.push_back(all_equal(counts) ? group.reduce_scatter(from, to, op)
                                           : group.reduce_scatter_v(from, to, counts, op));
  return submit(task, std::move(launch), options.timeout, parts);
}

}  // namespace xylem::pytorch
