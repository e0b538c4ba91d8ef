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

/// A job of the group's members; `name` is drawn for it.
Runtime start(const c10::intrusive_ptr<c10d::Store>& given,
              const GroupOptions& group,
              std::string& name) {
  // The start of a group is limited as its operations are, but not without end.
  const auto limit = std::min<milliseconds>(group.timeout, kBackendDefaultTimeout);
  const Deadline deadline = Deadline::after(limit);
  auto meeting = meet(given, {group.rank, group.size}, deadline);
  if (!meeting) check(meeting.status());
  xylem::Options options;
  options.rank = static_cast<std::uint32_t>(group.rank);
  options.size = static_cast<std::uint32_t>(group.size);
  options.store = meeting->store;
  options.job = name = meeting->name;
  options.secret = meeting->secret;
  options.start_timeout =
      std::max(std::chrono::ceil<milliseconds>(deadline.left()), milliseconds(1));
  options.timeout = group.timeout;
  auto runtime = Runtime::create(options);
  if (!runtime) check(runtime.status());
  return std::move(runtime).value();
}

/// What an operation reads and writes.
struct Sides {
  Buffer input, output;
};

/// The tensor's memory if it holds the elements in logical order, else a copy that does.
at::Tensor read_from(const at::Tensor& tensor, Begun& begun) {
  at::Tensor memory = tensor;
  if (!is_plain(tensor)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    memory = at::empty(tensor.sizes(), tensor.options());
    memory.copy_(tensor);
  }
  begun.kept.push_back(memory);
  return memory;
}

/// The tensor's memory if it is to hold the elements in logical order, else fresh memory from which
/// they are copied in the end.
at::Tensor write_to(const at::Tensor& tensor, Begun& begun) {
  begun.outputs.push_back(tensor);
  if (is_plain(tensor)) return tensor;
  at::Tensor memory = at::empty(tensor.sizes(), tensor.options());
  begun.landings.push_back({memory, tensor});
  return memory;
}

/// Both.
at::Tensor update(const at::Tensor& tensor, Begun& begun) {
  const at::Tensor memory = write_to(tensor, begun);
  if (!is_plain(tensor)) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    memory.copy_(tensor);
  }
  return memory;
}

/// The same of lists, as one.
Packed read_from(const Tensors& parts, Begun& begun) {
  Packed packed(parts);
  packed.pack(parts);
  begun.kept.push_back(packed.flat());
  return packed;
}

Packed write_to(const Tensors& parts, Begun& begun) {
  Packed packed(parts);
  begun.kept.push_back(packed.flat());
  begun.outputs.insert(begun.outputs.end(), parts.begin(), parts.end());
  for (std::size_t i = 0; !packed.is_view() && i < parts.size(); ++i) {
    begun.landings.push_back({packed.part(parts, i), parts[i]});
  }
  return packed;
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
      store_(own_connection(store)),
      group_(std::move(group)),
      options_(c10::make_intrusive<Options>(kBackendName, group_.timeout)),
      timeout_(group_.timeout.count()),
      runtime_(start(store_, group_, name_)),
      world_(runtime_.world()) {
  auto apart = world_.duplicate();
  if (!apart) check(apart.status());
  sparse_ = std::make_shared<SparseReducer>(*std::move(apart));
  set_group(*options_, group_.name, group_.global_ranks);
  Recorder::get().set_rank(label()->ranks[static_cast<std::size_t>(getRank())]);
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
  return c10::make_intrusive<Backend>(store, std::move(part));
}

// --- calls ---

TaskPtr Backend::open(OpType type, const char* title, const Tensors& inputs) {
  pending_->sweep();
  const std::uint64_t sequence = is_message(type) ? sequence_.load() : ++sequence_;
  return c10::make_intrusive<Task>(getRank(), TaskName{type, title, sequence}, pending_, inputs);
}

milliseconds Backend::limit_of(milliseconds asked) const noexcept {
  return asked == c10d::kUnsetTimeout ? milliseconds(timeout_.load()) : asked;
}

std::shared_ptr<const GroupLabel> Backend::label() {
  const std::lock_guard lock(labelling_);
  if (!label_ || label_->description != getGroupDesc()) {
    auto ranks = group_.global_ranks;
    for (auto rank = ranks.size(); rank < static_cast<std::size_t>(getSize()); ++rank) {
      ranks.push_back(rank);
    }
    label_ =
        std::make_shared<GroupLabel>(GroupLabel{group_.name, getGroupDesc(), std::move(ranks)});
  }
  return label_;
}

Backend::WorkPtr Backend::submit(
    const TaskPtr& task, Begun begun, milliseconds timeout, const Tensors& inputs, int peer) {
  const milliseconds limit = limit_of(timeout);
  if (limit != group_.timeout) {
    for (const xylem::Work& work : begun.works) work.set_timeout(limit);
  }
  const auto& [type, title, sequence, unused] = task->name();
  const std::uint64_t messages = is_message(type) ? ++messages_ : messages_.load();
  task->set_record(Recorder::get().begin(
      label(), {title, type, sequence, messages, getRank(), peer, limit}, inputs, begun.outputs));
  // First, so that the tensors of what has begun are kept whatever becomes of the rest.
  task->take(std::move(begun));
  for (const xylem::Work& work : task->works()) {
    if (!work.ended()) continue;
    // What the call excludes is refused on the spot, like any wrong argument.
    const Status status = work.status();
    if (status.code() == Code::invalid_argument || status.code() == Code::unsupported)
      check(status);
  }
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
  // Torch does not end a block that an exception has left: its calls go on by themselves.
  const std::lock_guard lock(coalescing_);
  coalesced_.emplace();
}

Backend::WorkPtr Backend::endCoalescing() {
  Begun begun;
  {
    const std::lock_guard lock(coalescing_);
    if (!coalesced_) refuse("coalescing has not begun");
    begun.parts = *std::exchange(coalesced_, std::nullopt);
  }
  for (const TaskPtr& part : begun.parts) {
    begun.works.append(part->works().begin(), part->works().end());
    begun.outputs.insert(begun.outputs.end(), part->outputs().begin(), part->outputs().end());
  }
  const auto task = c10::make_intrusive<Task>(
      getRank(), TaskName{OpType::COALESCED, "xylem:coalesced", sequence_.load()}, pending_,
      Tensors());
  task->take(std::move(begun));
  return task;
}

// --- reductions ---

namespace {

Sides prepare_all_reduce(const at::Tensor& tensor, const ReduceOp& op, Begun& begun) {
  const Buffer buffer = reduced(update(tensor, begun), op);
  return {buffer, buffer};
}

Sides prepare_reduce_scatter(
    const at::Tensor& output, const at::Tensor& input, int size, const ReduceOp& op, Begun& begun) {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  check_same_type("reduce_scatter", input, output);
  if (input.numel() != output.numel() * size) {
    refuse(c10::str("reduce_scatter: input of ", input.numel(), " elements, output of ",
                    output.numel(), "; the input must have ", size, " times as many"));
  }
  return {reduced(read_from(input, begun), op), reduced(write_to(output, begun), op)};
}

}  // namespace

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const at::Tensor& tensor = only("all_reduce", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  const Sides sides = prepare_all_reduce(tensor, op, begun);
  const TaskPtr task = open(OpType::ALLREDUCE, "xylem:all_reduce", tensors);
  begun.works.push_back(world_.all_reduce(sides.input, sides.output, op));
  return submit(task, std::move(begun), options.timeout, tensors);
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
  return sparse_->reduce(tensors.front(), op, ++sequence_, limit_of(options.timeout));
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  check_tensors("all_reduce_coalesced", tensors);
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  std::vector<Sides> calls;
  for (const at::Tensor& tensor : tensors) calls.push_back(prepare_all_reduce(tensor, op, begun));
  const TaskPtr task = open(OpType::ALLREDUCE_COALESCED, "xylem:all_reduce", tensors);
  for (const auto& [input, output] : calls) {
    begun.works.push_back(world_.all_reduce(input, output, op));
  }
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  const std::uint32_t root = peer("reduce", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  const Buffer buffer = reduced(is_root ? update(tensor, begun) : read_from(tensor, begun), op);
  if (!is_root) begun.outputs.push_back(tensor);
  const TaskPtr task = open(OpType::REDUCE, "xylem:reduce", tensors);
  begun.works.push_back(world_.reduce(buffer, is_root ? buffer : Buffer(), op, root));
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor& output,
                                               at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  const Sides sides = prepare_reduce_scatter(output, input, getSize(), op, begun);
  const Tensors inputs{input};
  const TaskPtr task = open(OpType::_REDUCE_SCATTER_BASE, "xylem:_reduce_scatter_base", inputs);
  begun.works.push_back(world_.reduce_scatter(sides.input, sides.output, op));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_count("reduce_scatter_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  std::vector<Sides> calls;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(prepare_reduce_scatter(outputs[i], inputs[i], getSize(), op, begun));
  }
  const TaskPtr task = open(reduce_scatter_coalesced_type<OpType>(),
                            "xylem:reduce_scatter_tensor_coalesced", inputs);
  for (const auto& [input, output] : calls) {
    begun.works.push_back(world_.reduce_scatter(input, output, op));
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
  check_same_type("reduce_scatter", parts.front(), output);
  const at::Tensor& own = parts[static_cast<std::size_t>(getRank())];
  if (own.numel() != output.numel()) {
    refuse(c10::str("reduce_scatter: output of ", output.numel(),
                    " elements, this rank's input of ", own.numel(), "; both must have as many"));
  }
  const ReduceOp op = reduction(options.reduceOp);
  Begun begun;
  const Packed packed = read_from(parts, begun);
  const Buffer from = reduced(packed.flat(), op), to = reduced(write_to(output, begun), op);
  const auto counts = packed.counts(parts);
  const TaskPtr task = open(OpType::REDUCE_SCATTER, "xylem:reduce_scatter", parts);
  begun.works.push_back(all_equal(counts) ? world_.reduce_scatter(from, to, op)
                                          : world_.reduce_scatter_v(from, to, counts, op));
  return submit(task, std::move(begun), options.timeout, parts);
}

// --- moves ---

namespace {

Sides prepare_all_gather(const at::Tensor& output,
                         const at::Tensor& input,
                         int size,
                         Begun& begun) {
  check_tensor("all_gather", output);
  check_tensor("all_gather", input);
  check_same_type("all_gather", input, output);
  if (output.numel() != input.numel() * size) {
    refuse(c10::str("all_gather: input of ", input.numel(), " elements, output of ", output.numel(),
                    "; the output must have ", size, " times as many"));
  }
  return {moved(read_from(input, begun)), moved(write_to(output, begun))};
}

/// The same into a list, whose tensors may have different sizes.
struct Gathering {
  Sides sides;
  std::vector<std::uint64_t> counts;
};

Gathering prepare_all_gather(
    const Tensors& outputs, const at::Tensor& input, int rank, int size, Begun& begun) {
  check_count("all_gather", "outputs", outputs.size(), size);
  check_tensors("all_gather", outputs);
  check_tensor("all_gather", input);
  check_same_type("all_gather", input, outputs.front());
  const at::Tensor& own = outputs[static_cast<std::size_t>(rank)];
  if (own.numel() != input.numel()) {
    refuse(c10::str("all_gather: input of ", input.numel(), " elements, this rank's output of ",
                    own.numel(), "; both must have as many"));
  }
  const Buffer from = moved(read_from(input, begun));
  const Packed to = write_to(outputs, begun);
  return {{from, moved(to.flat())}, to.counts(outputs)};
}

xylem::Work all_gather(const Communicator& world, const Gathering& call) {
  return all_equal(call.counts)
             ? world.all_gather(call.sides.input, call.sides.output)
             : world.all_gather_v(call.sides.input, call.sides.output, call.counts);
}

}  // namespace

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  const std::uint32_t root = peer("broadcast", options.rootRank);
  const bool is_root = getRank() == options.rootRank;
  Begun begun;
  const Buffer buffer = moved(is_root ? read_from(tensor, begun) : write_to(tensor, begun));
  if (is_root) begun.outputs.push_back(tensor);
  const TaskPtr task = open(OpType::BROADCAST, "xylem:broadcast", tensors);
  begun.works.push_back(world_.broadcast(buffer, root));
  return submit(task, std::move(begun), options.timeout, tensors);
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs,
                                    Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("all_gather", inputs);
  check_count("all_gather", "lists of outputs", outputs.size(), 1);
  Begun begun;
  const auto call = prepare_all_gather(outputs.front(), input, getRank(), getSize(), begun);
  const TaskPtr task = open(OpType::ALLGATHER, "xylem:all_gather", inputs);
  begun.works.push_back(all_gather(world_, call));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor& output,
                                          at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  Begun begun;
  const Sides sides = prepare_all_gather(output, input, getSize(), begun);
  const Tensors inputs{input};
  const TaskPtr task = open(OpType::_ALLGATHER_BASE, "xylem:_all_gather_base", inputs);
  begun.works.push_back(world_.all_gather(sides.input, sides.output));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs,
                                              Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  check_count("all_gather_coalesced", "lists of outputs (one for each rank)", outputs.size(),
              getSize());
  Begun begun;
  std::vector<Gathering> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_all;
    for (const Tensors& of_rank : outputs) {
      check_count("all_gather_coalesced", "outputs of a rank", of_rank.size(),
                  static_cast<std::int64_t>(inputs.size()));
      of_all.push_back(of_rank[i]);
    }
    calls.push_back(prepare_all_gather(of_all, inputs[i], getRank(), getSize(), begun));
  }
  const TaskPtr task = open(OpType::ALLGATHER_COALESCED, "xylem:all_gather", inputs);
  for (const Gathering& call : calls) begun.works.push_back(all_gather(world_, call));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs,
                                                          Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  check_count("all_gather_into_tensor_coalesced", "outputs", outputs.size(),
              static_cast<std::int64_t>(inputs.size()));
  Begun begun;
  std::vector<Sides> calls;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(prepare_all_gather(outputs[i], inputs[i], getSize(), begun));
  }
  const TaskPtr task =
      open(all_gather_coalesced_type<OpType>(), "xylem:all_gather_into_tensor_coalesced", inputs);
  for (const auto& [input, output] : calls) begun.works.push_back(world_.all_gather(input, output));
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
  Begun begun;
  const Buffer from = moved(read_from(input, begun));
  Buffer to;
  if (is_root) {
    const Tensors& parts = outputs.front();
    check_count("gather", "outputs", parts.size(), getSize());
    check_tensors("gather", parts);
    check_same_type("gather", input, parts.front());
    check_same_elements("gather", parts, input.numel());
    to = moved(write_to(parts, begun).flat());
  }
  const TaskPtr task = open(OpType::GATHER, "xylem:gather", inputs);
  begun.works.push_back(world_.gather(from, to, root));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output,
                                        at::Tensor& input,
                                        const c10d::GatherOptions& options) {
  check_tensor("gather", input);
  const std::uint32_t root = peer("gather", options.rootRank);
  Begun begun;
  const Buffer from = moved(read_from(input, begun));
  Buffer to;
  if (getRank() == options.rootRank) {
    check_tensor("gather", output);
    check_same_type("gather", input, output);
    if (output.numel() != input.numel() * getSize()) {
      refuse(c10::str("gather: input of ", input.numel(), " elements, output of ", output.numel(),
                      "; the output must have ", getSize(), " times as many"));
    }
    to = moved(write_to(output, begun));
  }
  const Tensors inputs{input};
  const TaskPtr task = open(OpType::GATHER, "xylem:gather", inputs);
  begun.works.push_back(world_.gather(from, to, root));
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
  Begun begun;
  const Buffer to = moved(write_to(output, begun));
  Buffer from;
  if (is_root) {
    const Tensors& parts = inputs.front();
    check_count("scatter", "inputs", parts.size(), getSize());
    check_tensors("scatter", parts);
    check_same_type("scatter", parts.front(), output);
    check_same_elements("scatter", parts, output.numel());
    from = moved(read_from(parts, begun).flat());
  }
  const TaskPtr task = open(OpType::SCATTER, "xylem:scatter", is_root ? inputs.front() : Tensors());
  begun.works.push_back(world_.scatter(from, to, root));
  return submit(task, std::move(begun), options.timeout, is_root ? inputs.front() : Tensors());
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
  Begun begun;
  // Unequal parts cannot be exchanged in place.
  const bool is_in_place = !is_even && input.is_alias_of(output);
  const Buffer from = moved(read_from(is_in_place ? input.clone() : input, begun));
  const Buffer to = moved(write_to(output, begun));
  const Tensors inputs{input};
  const TaskPtr task = open(OpType::ALLTOALL_BASE, "xylem:all_to_all", inputs);
  begun.works.push_back(is_even ? world_.all_to_all(from, to)
                                : world_.all_to_all_v(from, given, to, taken));
  return submit(task, std::move(begun), options.timeout, inputs);
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs,
                                   Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  check_count("all_to_all", "inputs", inputs.size(), getSize());
  check_count("all_to_all", "outputs", outputs.size(), getSize());
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", outputs);
  check_same_type("all_to_all", inputs.front(), outputs.front());
  Begun begun;
  const Packed from = read_from(inputs, begun), to = write_to(outputs, begun);
  const bool is_in_place = from.flat().is_alias_of(to.flat());
  const at::Tensor source = is_in_place ? read_from(from.flat().clone(), begun) : from.flat();
  const TaskPtr task = open(OpType::ALLTOALL, "xylem:all_to_all", inputs);
  begun.works.push_back(world_.all_to_all_v(moved(source), from.counts(inputs), moved(to.flat()),
                                            to.counts(outputs)));
  return submit(task, std::move(begun), options.timeout, inputs);
}

// --- messages ---

namespace {

const at::Tensor& message(const char* call, Tensors& tensors, int tag) {
  const at::Tensor& tensor = only(call, tensors);
  if (tag < 0) refuse(c10::str(call, ": tag ", tag, "; tags are not negative"));
  if (!is_plain(tensor)) {
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
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.send(moved(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors, to);
}

Backend::WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const std::uint32_t partner = peer("recv", from);
  const TaskPtr task = open(OpType::RECV, "xylem:recv", tensors);
  Begun begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.recv(moved(tensor), partner, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors, from);
}

Backend::WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = message("recv", tensors, tag);
  const TaskPtr task = open(OpType::RECVANYSOURCE, "xylem:recvAnySource", tensors);
  Begun begun;
  begun.outputs.push_back(tensor);
  begun.works.push_back(world_.recv(moved(tensor), std::nullopt, static_cast<std::uint32_t>(tag)));
  return submit(task, std::move(begun), c10d::kUnsetTimeout, tensors);
}

// --- the group ---

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& options) {
  const TaskPtr task = open(OpType::BARRIER, "xylem:barrier", {});
  Begun begun;
  // As everywhere in torch.distributed, it ends after the collectives that were called before.
  begun.awaited = pending_->works_of(
      [](OpType type) { return !is_message(type) && type != OpType::COALESCED; });
  begun.works.push_back(world_.barrier());
  return submit(task, std::move(begun), options.timeout, {});
}

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds limit = limit_of(options.timeout);
  const Deadline deadline = Deadline::after(limit);
  const std::uint64_t number = barriers_++;
  const auto prefix_of = [&](std::uint64_t barrier) {
    return c10::str("xylem/", name_, "/monitored_barrier/", barrier, "/");
  };
  const std::string prefix = prefix_of(number);
  constexpr const char* kPassed = "passed";
  if (getRank() != 0) {
    store_->set(prefix + std::to_string(getRank()), kPassed);
    // Rank 0 may wait as long for the others, and is to be the first to tell.
    if (!is_set(*store_, prefix + "verdict", Deadline::after(2 * limit))) {
      check(failure(Code::timed_out,
                    c10::str("[Rank ", getRank(), "]: rank 0 did not pass monitoredBarrier in ",
                             limit.count(), " ms")));
    }
    const std::string verdict = store_->get_to_str(prefix + "verdict");
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
    if (!is_set(*store_, prefix + std::to_string(rank), deadline)) missing.push_back(rank);
  }
  std::string verdict = kPassed;
  if (!missing.empty()) {
    verdict = c10::str("[Rank 0]: Rank", missing.size() == 1 ? " " : "s ", c10::Join(", ", missing),
                       " failed to pass monitoredBarrier in ", limit.count(), " ms");
  }
  store_->set(prefix + "verdict", verdict);
  if (missing.empty() && number > 0) {
    // All have read what the barrier before came to.
    for (int rank = 1; rank < getSize(); ++rank) {
      store_->deleteKey(prefix_of(number - 1) + std::to_string(rank));
    }
    store_->deleteKey(prefix_of(number - 1) + "verdict");
  }
  if (!missing.empty()) check(failure(Code::timed_out, verdict));
}

void Backend::abort() {
  if (is_closed_) return;
  sparse_->abort();
  (void)world_.abort("torch.distributed aborted the group");
}

c10d::ErrorType Backend::getError() {
  return pending_->has_failed() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Backend::shutdown() {
  // Callbacks that run on the way may come here again.
  if (is_closed_.exchange(true)) return;
  sparse_->stop();
  // What was called goes through, if the others call it, too; but what still waits for a message
  // then would wait for ever.
  constexpr std::chrono::seconds kPatience{5};
  const Deadline deadline = Deadline::after(kPatience);
  const auto goes_through = [](OpType type) {
    return type != OpType::RECV && type != OpType::RECVANYSOURCE && type != OpType::COALESCED;
  };
  for (const xylem::Work& work : pending_->works_of(goes_through)) {
    (void)work.wait_for(deadline.left());
  }
  if (Status left = runtime_.shutdown(); left.code() == Code::busy) {
    (void)world_.abort("the group was destroyed while operations were under way");
    pending_->drain();
    (void)runtime_.shutdown();
  }
  pending_->drain();
}

}  // namespace xylem::pytorch
