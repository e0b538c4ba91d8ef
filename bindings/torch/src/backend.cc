// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include "compat.h"
#include "failure.h"
#include "store.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

namespace xylem::pytorch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

std::string group_label(const GroupOptions& group) {
  if (group.global_ranks.empty()) return "the world";
  return c10::str("the group of ranks ", group.global_ranks);
}

Runtime start(const c10::intrusive_ptr<c10d::Store>& given, const GroupOptions& group) {
  // The start of a group is limited as its operations are, but not without end.
  const auto limit = std::min<milliseconds>(group.timeout, kBackendDefaultTimeout);
  const Deadline deadline = Deadline::after(limit);
  auto meeting = meet(given, {group.rank, group.size}, deadline);
  if (!meeting) check(meeting.status());
  xylem::Options options;
  options.rank = static_cast<std::uint32_t>(group.rank);
  options.size = static_cast<std::uint32_t>(group.size);
  options.store = meeting->store;
  options.job = meeting->name;
  options.secret = meeting->secret;
  options.start_timeout = std::chrono::ceil<milliseconds>(deadline.left());
  options.timeout = group.timeout;
  auto runtime = Runtime::create(options);
  if (!runtime) check(runtime.status());
  return std::move(runtime).value();
}

/// A tensor's elements in logical order.
at::Tensor packed(const at::Tensor& tensor) { return tensor.contiguous(); }

/// Memory for a tensor's elements in logical order: its own, or fresh, from which `begun` copies
/// them when it has ended.
at::Tensor landing(at::Tensor& tensor, Begun& begun) {
  if (tensor.is_contiguous()) return tensor;
  at::Tensor memory = at::empty(tensor.sizes(), tensor.options());
  auto earlier = std::move(begun.finish);
  begun.finish = [earlier = std::move(earlier), tensor, memory]() mutable {
    if (earlier) earlier();
    tensor.copy_(memory);
  };
  return memory;
}

void unpack_later(Packed packed, Tensors parts, Begun& begun) {
  begun.kept.push_back(packed.flat());
  if (packed.is_view()) return;
  auto earlier = std::move(begun.finish);
  begun.finish = [earlier = std::move(earlier), packed = std::move(packed),
                  parts = std::move(parts)]() mutable {
    if (earlier) earlier();
    packed.unpack(parts);
  };
}

bool all_equal(const std::vector<std::uint64_t>& counts) {
  return std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end();
}

void check_count(const char* call, const char* what, std::size_t given, std::int64_t expected) {
  if (static_cast<std::int64_t>(given) != expected) {
    refuse(c10::str(call, ": ", given, " ", what, "; expected ", expected));
  }
}

void check_same_type(const char* call, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    refuse(c10::str(call, ": input of ", a.scalar_type(), ", output of ", b.scalar_type(),
                    "; both must have one type"));
  }
}

void check_same_elements(const char* call, const Tensors& tensors, std::int64_t expected) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != expected) {
      refuse(c10::str(call, ": a tensor of ", tensor.numel(), " elements in a list, another of ",
                      expected, "; all must have as many"));
    }
  }
}

/// Elements for each rank of a dimension that is split so; evenly where nothing is said.
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

}  // namespace

Backend::Backend(StorePtr store, GroupOptions group)
    : c10d::Backend(group.rank, group.size),
      store_(std::move(store)),
      group_(std::move(group)),
      options_(c10::make_intrusive<Options>(kBackendName, group_.timeout)),
      timeout_(group_.timeout.count()),
      runtime_(start(store_, group_)),
      world_(runtime_.world()) {
  auto apart = world_.duplicate();
  if (!apart) check(apart.status());
  sparse_ = std::make_shared<SparseReducer>(*std::move(apart));
  set_group(*options_, group_.name, group_.global_ranks);
  init();
}

Backend::~Backend() {
  // Whoever waits for Python's lock in a future's callback must get it.
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  shutdown();
  pending_->stop();
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() { return options_; }

void Backend::setTimeout(milliseconds timeout) {
  options_->timeout = timeout;
  timeout_ = timeout.count();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const StorePtr& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto place = std::ranges::find(ranks, getRank());
  if (place == ranks.end()) return nullptr;
  GroupOptions part;
  part.rank = static_cast<int>(place - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.timeout = options ? options->timeout : milliseconds(timeout_.load());
  part.name = options ? group_name(*options) : group_.name;
  for (const int rank : ranks) {
    const auto member = peer("split", rank);
    part.global_ranks.push_back(group_.global_ranks.empty() ? member : group_.global_ranks[member]);
  }
  return c10::make_intrusive<Backend>(own_connection(store), std::move(part));
}

// --- calls
// ----------------------------------------------------------------------------------------

TaskPtr Backend::open(OpType type, const char* title, const Tensors& inputs) {
  pending_->sweep();
  const bool is_message =
      type == OpType::SEND || type == OpType::RECV || type == OpType::RECVANYSOURCE;
  const std::uint64_t sequence = is_message ? sequence_.load() : ++sequence_;
  return c10::make_intrusive<Task>(getRank(), TaskName{type, title, sequence}, pending_, inputs);
}

milliseconds Backend::limit_of(milliseconds asked) const noexcept {
  return asked == c10d::kUnsetTimeout ? milliseconds(timeout_.load()) : asked;
}

Backend::WorkPtr Backend::submit(const TaskPtr& task, Begun begun, milliseconds timeout) {
  const milliseconds limit = limit_of(timeout);
  for (const xylem::Work& work : begun.works) {
    // What the call excludes is refused on the spot, like any wrong argument.
    const Status status = work.status();
    if (status.code() == Code::invalid_argument || status.code() == Code::unsupported)
      check(status);
    if (limit != group_.timeout) work.set_timeout(limit);
  }
  task->take(std::move(begun));
  const std::lock_guard lock(coalescing_);
  if (coalesced_) coalesced_->push_back(task);
  return task;
}

std::uint32_t Backend::peer(const char* what, std::int64_t rank) const {
  if (rank < 0 || rank >= getSize()) {
    refuse(c10::str(what, ": rank ", rank, " of ", group_label(group_), ", which has ", getSize()));
  }
  return static_cast<std::uint32_t>(rank);
}

void Backend::startCoalescing() {
  const std::lock_guard lock(coalescing_);
  if (coalesced_) refuse("coalescing has begun already: end it first");
  coalesced_.emplace();
}

Backend::WorkPtr Backend::endCoalescing() {
  std::vector<TaskPtr> parts;
  {
    const std::lock_guard lock(coalescing_);
    if (!coalesced_) refuse("coalescing has not begun");
    parts = *std::exchange(coalesced_, std::nullopt);
  }
  const auto task = c10::make_intrusive<Task>(
      getRank(), TaskName{OpType::COALESCED, "xylem:coalesced", sequence_.load()}, pending_,
      Tensors());
  Begun begun;
  for (const TaskPtr& part : parts) {
    begun.works.append(part->works().begin(), part->works().end());
    begun.outputs.insert(begun.outputs.end(), part->outputs().begin(), part->outputs().end());
  }
  begun.finish = [parts = std::move(parts)] {
    for (const TaskPtr& part : parts) part->wait();
  };
  task->take(std::move(begun));
  return task;
}

// --- reductions
// -----------------------------------------------------------------------------------

void Backend::add_all_reduce(at::Tensor& tensor, const c10d::ReduceOp& op, Begun& begun) const {
  const ReduceOp reduce = reduction(op);
  if (tensor.is_contiguous()) {
    const Buffer buffer = reduced(tensor, reduce);
    begun.works.push_back(world_.all_reduce(buffer, buffer, reduce));
  } else {
    const at::Tensor memory = landing(tensor, begun);
    memory.copy_(tensor);
    const Buffer buffer = reduced(memory, reduce);
    begun.works.push_back(world_.all_reduce(buffer, buffer, reduce));
  }
  begun.outputs.push_back(tensor);
}

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  at::Tensor& tensor = only("all_reduce", tensors);
  const TaskPtr task = open(OpType::ALLREDUCE, "xylem:all_reduce", tensors);
  Begun begun;
  add_all_reduce(tensor, options.reduceOp, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  check_count("all_reduce", "tensors", tensors.size(), 1);
  return sparse_->reduce(tensors.front(), reduction(options.reduceOp), ++sequence_,
                         limit_of(options.timeout));
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  check_tensors("all_reduce_coalesced", tensors);
  const TaskPtr task = open(OpType::ALLREDUCE_COALESCED, "xylem:all_reduce", tensors);
  Begun begun;
  for (at::Tensor& tensor : tensors) add_all_reduce(tensor, options.reduceOp, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only("reduce", tensors);
  const std::uint32_t root = peer("reduce", options.rootRank);
  const ReduceOp op = reduction(options.reduceOp);
  const TaskPtr task = open(OpType::REDUCE, "xylem:reduce", tensors);
  Begun begun;
  const bool is_root = getRank() == options.rootRank;
  const at::Tensor memory = is_root ? landing(tensor, begun) : packed(tensor);
  if (is_root && !tensor.is_contiguous()) memory.copy_(tensor);
  const Buffer buffer = reduced(memory, op);
  begun.kept.push_back(memory);
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.reduce(buffer, is_root ? buffer : Buffer(), op, root));
  return submit(task, std::move(begun), options.timeout);
}

void Backend::add_reduce_scatter(at::Tensor& output,
                                 at::Tensor& input,
                                 const c10d::ReduceOp& op,
                                 Begun& begun) const {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  check_same_type("reduce_scatter", input, output);
  if (input.numel() != output.numel() * getSize()) {
    refuse(c10::str("reduce_scatter: input of ", input.numel(), " elements, output of ",
                    output.numel(), "; the input must have ", getSize(), " times as many"));
  }
  const ReduceOp reduce = reduction(op);
  const at::Tensor from = packed(input), to = landing(output, begun);
  begun.kept.insert(begun.kept.end(), {from, to});
  begun.outputs.push_back(output);
  begun.works.push_back(world_.reduce_scatter(reduced(from, reduce), reduced(to, reduce), reduce));
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output,
                                               at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const TaskPtr task = open(OpType::_REDUCE_SCATTER_BASE, "xylem:_reduce_scatter_base", {input});
  Begun begun;
  add_reduce_scatter(output, input, options.reduceOp, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  const TaskPtr task = open(reduce_scatter_coalesced_type<OpType>(),
                            "xylem:reduce_scatter_tensor_coalesced", inputs);
  Begun begun;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    add_reduce_scatter(outputs[i], inputs[i], options.reduceOp, begun);
  }
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs,
                                         std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = only("reduce_scatter", outputs);
  check_count("reduce_scatter", "lists of inputs", inputs.size(), 1);
  const Tensors& parts = inputs.front();
  check_count("reduce_scatter", "inputs", parts.size(), getSize());
  check_tensors("reduce_scatter", parts);
  check_same_type("reduce_scatter", parts.front(), output);
  const auto own = static_cast<std::size_t>(getRank());
  if (parts[own].numel() != output.numel()) {
    refuse(c10::str("reduce_scatter: output of ", output.numel(),
                    " elements, this rank's input of ", parts[own].numel(),
                    "; both must have as many"));
  }
  const TaskPtr task = open(OpType::REDUCE_SCATTER, "xylem:reduce_scatter", parts);
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  const Packed from(parts);
  from.pack(parts);
  const at::Tensor to = landing(output, begun);
  begun.kept.insert(begun.kept.end(), {from.flat(), to});
  begun.outputs.push_back(output);
  const auto counts = from.counts(parts);
  const Buffer in = reduced(from.flat(), op), out = reduced(to, op);
  begun.works.push_back(all_equal(counts) ? world_.reduce_scatter(in, out, op)
                                          : world_.reduce_scatter_v(in, out, counts, op));
  return submit(task, std::move(begun), options.timeout);
}

// --- moves
// ----------------------------------------------------------------------------------------

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only("broadcast", tensors);
  const std::uint32_t root = peer("broadcast", options.rootRank);
  const TaskPtr task = open(OpType::BROADCAST, "xylem:broadcast", tensors);
  Begun begun;
  const bool is_root = getRank() == options.rootRank;
  const at::Tensor memory = is_root ? packed(tensor) : landing(tensor, begun);
  begun.kept.push_back(memory);
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.broadcast(moved(memory), root));
  return submit(task, std::move(begun), options.timeout);
}

void Backend::add_all_gather(at::Tensor& output, at::Tensor& input, Begun& begun) const {
  check_tensor("all_gather", output);
  check_tensor("all_gather", input);
  check_same_type("all_gather", input, output);
  if (output.numel() != input.numel() * getSize()) {
    refuse(c10::str("all_gather: input of ", input.numel(), " elements, output of ", output.numel(),
                    "; the output must have ", getSize(), " times as many"));
  }
  const at::Tensor from = packed(input), to = landing(output, begun);
  begun.kept.insert(begun.kept.end(), {from, to});
  begun.outputs.push_back(output);
  begun.works.push_back(world_.all_gather(moved(from), moved(to)));
}

void Backend::add_all_gather_list(Tensors& outputs, const at::Tensor& input, Begun& begun) const {
  check_count("all_gather", "outputs", outputs.size(), getSize());
  check_tensors("all_gather", outputs);
  check_tensor("all_gather", input);
  check_same_type("all_gather", input, outputs.front());
  const auto own = static_cast<std::size_t>(getRank());
  if (outputs[own].numel() != input.numel()) {
    refuse(c10::str("all_gather: input of ", input.numel(), " elements, this rank's output of ",
                    outputs[own].numel(), "; both must have as many"));
  }
  const at::Tensor from = packed(input);
  Packed to(outputs);
  const auto counts = to.counts(outputs);
  begun.kept.push_back(from);
  begun.outputs.insert(begun.outputs.end(), outputs.begin(), outputs.end());
  begun.works.push_back(all_equal(counts)
                            ? world_.all_gather(moved(from), moved(to.flat()))
                            : world_.all_gather_v(moved(from), moved(to.flat()), counts));
  unpack_later(std::move(to), outputs, begun);
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs,
                                    Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("all_gather", inputs);
  check_count("all_gather", "lists of outputs", outputs.size(), 1);
  const TaskPtr task = open(OpType::ALLGATHER, "xylem:all_gather", inputs);
  Begun begun;
  add_all_gather_list(outputs.front(), input, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor& output,
                                          at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  const TaskPtr task = open(OpType::_ALLGATHER_BASE, "xylem:_all_gather_base", {input});
  Begun begun;
  add_all_gather(output, input, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs,
                                              Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  check_count("all_gather_coalesced", "lists of outputs (one for each rank)", outputs.size(),
              getSize());
  const TaskPtr task = open(OpType::ALLGATHER_COALESCED, "xylem:all_gather", inputs);
  Begun begun;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_all;
    for (const Tensors& of_rank : outputs) {
      check_count("all_gather_coalesced", "outputs of a rank", of_rank.size(),
                  static_cast<std::int64_t>(inputs.size()));
      of_all.push_back(of_rank[i]);
    }
    add_all_gather_list(of_all, inputs[i], begun);
  }
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs,
                                                          Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  check_count("all_gather_into_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  const TaskPtr task =
      open(all_gather_coalesced_type<OpType>(), "xylem:all_gather_into_tensor_coalesced", inputs);
  Begun begun;
  for (std::size_t i = 0; i < outputs.size(); ++i) add_all_gather(outputs[i], inputs[i], begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs,
                                 Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const at::Tensor& input = only("gather", inputs);
  const std::uint32_t root = peer("gather", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  check_count("gather", is_root ? "lists of outputs at the root" : "lists of outputs off the root",
              outputs.size(), is_root ? 1 : 0);
  const TaskPtr task = open(OpType::GATHER, "xylem:gather", inputs);
  Begun begun;
  const at::Tensor from = packed(input);
  begun.kept.push_back(from);
  if (!is_root) {
    begun.works.push_back(world_.gather(moved(from), Buffer(), root));
    return submit(task, std::move(begun), options.timeout);
  }
  Tensors& parts = outputs.front();
  check_count("gather", "outputs", parts.size(), getSize());
  check_tensors("gather", parts);
  check_same_type("gather", input, parts.front());
  check_same_elements("gather", parts, input.numel());
  Packed to(parts);
  begun.outputs = parts;
  begun.works.push_back(world_.gather(moved(from), moved(to.flat()), root));
  unpack_later(std::move(to), parts, begun);
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output,
                                        at::Tensor& input,
                                        const c10d::GatherOptions& options) {
  check_tensor("gather", input);
  const std::uint32_t root = peer("gather", options.rootRank);
  const TaskPtr task = open(OpType::GATHER, "xylem:gather", {input});
  Begun begun;
  const at::Tensor from = packed(input);
  begun.kept.push_back(from);
  Buffer into;
  if (getRank() == options.rootRank) {
    check_tensor("gather", output);
    check_same_type("gather", input, output);
    if (output.numel() != input.numel() * getSize()) {
      refuse(c10::str("gather: input of ", input.numel(), " elements, output of ", output.numel(),
                      "; the output must have ", getSize(), " times as many"));
    }
    const at::Tensor to = landing(output, begun);
    begun.kept.push_back(to);
    begun.outputs.push_back(output);
    into = moved(to);
  }
  begun.works.push_back(world_.gather(moved(from), into, root));
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::scatter(Tensors& outputs,
                                  std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  at::Tensor& output = only("scatter", outputs);
  const std::uint32_t root = peer("scatter", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  check_count("scatter", is_root ? "lists of inputs at the root" : "lists of inputs off the root",
              inputs.size(), is_root ? 1 : 0);
  const TaskPtr task = open(OpType::SCATTER, "xylem:scatter", is_root ? inputs.front() : Tensors());
  Begun begun;
  const at::Tensor to = landing(output, begun);
  begun.kept.push_back(to);
  begun.outputs.push_back(output);
  ConstBuffer from;
  if (is_root) {
    const Tensors& parts = inputs.front();
    check_count("scatter", "inputs", parts.size(), getSize());
    check_tensors("scatter", parts);
    check_same_type("scatter", parts.front(), output);
    check_same_elements("scatter", parts, output.numel());
    const Packed packed(parts);
    packed.pack(parts);
    begun.kept.push_back(packed.flat());
    from = moved(packed.flat());
  }
  begun.works.push_back(world_.scatter(from, moved(to), root));
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::alltoall_base(at::Tensor& output,
                                        at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  check_tensor("all_to_all_single", output);
  check_tensor("all_to_all_single", input);
  check_same_type("all_to_all_single", input, output);
  const bool is_even = output_splits.empty() && input_splits.empty();
  if (is_even && output.numel() != input.numel()) {
    refuse(c10::str("all_to_all_single: input of ", input.numel(), " elements, output of ",
                    output.numel(), "; without split sizes both must have as many"));
  }
  const auto given = split_counts("the input", input, input_splits, getSize());
  const auto taken = split_counts("the output", output, output_splits, getSize());
  const TaskPtr task = open(OpType::ALLTOALL_BASE, "xylem:all_to_all", {input});
  Begun begun;
  const at::Tensor to = landing(output, begun);
  at::Tensor from = packed(input);
  if (!is_even && from.is_alias_of(to)) from = from.clone();
  begun.kept.insert(begun.kept.end(), {from, to});
  begun.outputs.push_back(output);
  begun.works.push_back(is_even ? world_.all_to_all(moved(from), moved(to))
                                : world_.all_to_all_v(moved(from), given, moved(to), taken));
  return submit(task, std::move(begun), options.timeout);
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs,
                                   Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  check_count("all_to_all", "inputs", inputs.size(), getSize());
  check_count("all_to_all", "outputs", outputs.size(), getSize());
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  check_same_type("all_to_all", inputs.front(), outputs.front());
  const TaskPtr task = open(OpType::ALLTOALL, "xylem:all_to_all", inputs);
  Begun begun;
  const Packed packed(inputs);
  packed.pack(inputs);
  Packed to(outputs);
  at::Tensor from = packed.flat();
  if (from.is_alias_of(to.flat())) from = from.clone();
  begun.kept.push_back(from);
  begun.outputs = outputs;
  begun.works.push_back(world_.all_to_all_v(moved(from), packed.counts(inputs), moved(to.flat()),
                                            to.counts(outputs)));
  unpack_later(std::move(to), outputs, begun);
  return submit(task, std::move(begun), options.timeout);
}

// --- messages
// -------------------------------------------------------------------------------------

namespace {

at::Tensor& message(const char* call, Tensors& tensors, int tag) {
  at::Tensor& tensor = only(call, tensors);
  if (tag < 0) refuse(c10::str(call, ": tag ", tag, "; tags are not negative"));
  if (!tensor.is_contiguous()) {
    refuse(c10::str(call, ": the tensor is not contiguous: pass tensor.contiguous()"));
  }
  return tensor;
}

}  // namespace

Backend::WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = message("send", tensors, tag);
  const std::uint32_t partner = peer("send", to);
  const TaskPtr task = open(OpType::SEND, "xylem:send", tensors);
  Begun begun;
  begun.kept.push_back(tensor);
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.send(moved(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const std::uint32_t partner = peer("recv", from);
  const TaskPtr task = open(OpType::RECV, "xylem:recv", tensors);
  Begun begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.recv(moved(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const TaskPtr task = open(OpType::RECVANYSOURCE, "xylem:recvAnySource", tensors);
  Begun begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.recv(moved(tensor), std::nullopt, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout);
}

// --- the group
// ------------------------------------------------------------------------------------

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const TaskPtr task = open(OpType::BARRIER, "xylem:barrier", {});
  Begun begun;
  // As everywhere in torch.distributed, it ends after the collectives that were called before.
  begun.works = pending_->collectives();
  begun.works.push_back(world_.barrier());
  return submit(task, std::move(begun), options.timeout);
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds limit = limit_of(options.timeout);
  const Deadline deadline = Deadline::after(limit);
  const auto store = own_connection(store_);
  const std::string prefix = c10::str("xylem/monitored_barrier/", barriers_++, "/");
  constexpr const char* kPassed = "passed";
  if (getRank() != 0) {
    store->set(prefix + std::to_string(getRank()), kPassed);
    // Rank 0 may wait as long for the others, and is to be the first to tell.
    if (!is_set(*store, prefix + "verdict", Deadline::after(2 * limit))) {
      check(failure(Code::timed_out,
                    c10::str("[Rank ", getRank(), "]: rank 0 did not pass monitoredBarrier in ",
                             limit.count(), " ms")));
    }
    const std::string verdict = store->get_to_str(prefix + "verdict");
    if (verdict == kPassed) return;
    // In gloo's words, which programs look for.
    check(failure(Code::timed_out, c10::str("Rank ", getRank(),
                                            " successfully reached monitoredBarrier, but received "
                                            "errors while waiting for send/recv from rank 0: ",
                                            verdict)));
  }
  if (limit <= milliseconds(0)) {
    check(failure(Code::timed_out,
                  c10::str("Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms")));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
    if (!is_set(*store, prefix + std::to_string(rank), deadline)) missing.push_back(rank);
  }
  std::string verdict = kPassed;
  if (!missing.empty()) {
    verdict = c10::str("[Rank 0]: Rank", missing.size() == 1 ? " " : "s ", c10::Join(", ", missing),
                       " failed to pass monitoredBarrier in ", limit.count(), " ms");
  }
  store->set(prefix + "verdict", verdict);
  if (!missing.empty()) check(failure(Code::timed_out, verdict));
}

void Backend::abort() { check(world_.abort("torch.distributed aborted the group")); }

void Backend::shutdown() {
  if (!world_) return;
  sparse_->stop();
  // Nobody else has the job, so what is left to do is left for ever.
  if (Status left = runtime_.shutdown(); left.code() == Code::busy) {
    (void)world_.abort("the group was destroyed while operations were under way");
    pending_->drain();
    (void)runtime_.shutdown();
  }
  pending_->drain();
  world_ = Communicator();
}

}  // namespace xylem::pytorch
