// SPDX-License-Identifier: Apache-2.0
#include "sparse.h"

#include "failure.h"
#include "recorder.h"
#include "store.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace xylem::pytorch {
namespace {

constexpr std::size_t kMostDimensions = 16;
constexpr const char* kAborted = "torch.distributed aborted the group";

/// The facts about a rank's tensor, which all ranks exchange.
struct Shape {
  std::int64_t entries = 0;
  std::int64_t sparse_dimensions = 0;
  std::int64_t dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes{};

  bool is_like(const Shape& other) const noexcept {
    return sparse_dimensions == other.sparse_dimensions && dimensions == other.dimensions &&
           sizes == other.sizes;
  }
  std::string text() const {
    return c10::str("sizes ", at::IntArrayRef(sizes.data(), static_cast<std::size_t>(dimensions)),
                    ", ", sparse_dimensions, " of them sparse");
  }
};

Shape shape_of(const at::Tensor& tensor) {
  Shape shape{tensor._nnz(), tensor.sparse_dim(), tensor.dim(), {}};
  std::ranges::copy(tensor.sizes(), shape.sizes.begin());
  return shape;
}

/// State that the steps of a call share.
struct Reduction {
  const Communicator group;
  std::chrono::milliseconds timeout;
  bool has_own_limit;       ///< Whether `timeout` is the call's own and not that of the group.
  const std::string& note;  ///< Text that is appended to errors.
  Status outcome{};         ///< The failure of the step that failed; OK while none has failed.

  void await(const xylem::Work& work) {
    work.set_timeout(timeout);
    outcome = work.wait();
    check_outcome();
  }
  void check_outcome() const {
    check(outcome, std::string(has_own_limit ? "" : remedy_of_group_limit(outcome)) + note);
  }
};

/// The rows of all ranks, one after the other.
at::Tensor gather_rows(Reduction& reduction,
                       const at::Tensor& mine,
                       const std::vector<Shape>& shapes) {
  std::int64_t sum = 0, row = static_cast<std::int64_t>(elements_per_item(mine));
  for (const std::int64_t size : mine.sizes().slice(1)) row *= size;
  std::vector<std::uint64_t> counts;
  for (const Shape& shape : shapes) {
    sum += shape.entries;
    counts.push_back(static_cast<std::uint64_t>(shape.entries * row));
  }
  std::vector<std::int64_t> sizes = mine.sizes().vec();
  sizes[0] = sum;
  at::Tensor all = at::empty(sizes, mine.options());
  reduction.await(
      reduction.group.all_gather_v(transfer_buffer(mine), transfer_buffer(all), counts));
  return all;
}

at::Tensor sum_over(Reduction& reduction, const at::Tensor& tensor, bool is_average) {
  const Communicator& group = reduction.group;
  const at::Tensor mine = tensor.coalesce();
  const Shape shape = shape_of(mine);
  constexpr std::size_t kWords = sizeof(Shape) / sizeof(std::int64_t);
  std::vector<Shape> shapes(group.size());
  reduction.await(group.all_gather(ConstBuffer(&shape, kWords, DataType::int64),
                                   Buffer(shapes.data(), kWords * shapes.size(), DataType::int64)));
  for (std::uint32_t rank = 0; rank < shapes.size(); ++rank) {
    if (shapes[rank].is_like(shape)) continue;
    // All ranks detect the mismatch and end this call here, so the next call is not affected.
    check(failure(Code::mismatch,
                  c10::str("all_reduce of sparse tensors: rank ", group.world_rank(group.rank()),
                           " has ", shape.text(), ", rank ", group.world_rank(rank), " has ",
                           shapes[rank].text()),
                  group.world_rank(rank)),
          reduction.note);
  }
  const at::Tensor indices = gather_rows(reduction, mine._indices().t().contiguous(), shapes).t();
  const at::Tensor values = gather_rows(reduction, mine._values().contiguous(), shapes);
  at::Tensor sum =
      at::sparse_coo_tensor(indices, values, tensor.sizes(), tensor.options()).coalesce();
  if (!is_average) return sum;
  // Integers are truncated, as for dense tensors.
  const bool truncates = at::isIntegralType(sum.scalar_type(), true);
  const std::int64_t size = group.size();
  return truncates ? sum.div_(size, "trunc") : sum.div_(size);
}

}  // namespace

SparseTask::SparseTask(int rank, Call call, const SparseReducer& reducer)
    : Work(rank, c10d::OpType::_ALLREDUCE_SPARSE, "xylem:sparse_all_reduce", Tensors{call.tensor}),
      call_(std::move(call)),
      reducer_(&reducer),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}

void SparseTask::carry_out(const Communicator& group,
                           const Status& group_state,
                           Pending& pending) noexcept {
  Reduction reduction{group.labelled(call_.label), call_.timeout, call_.has_own_limit,
                      pending.note(), group_state};
  try {
    reduction.check_outcome();
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    call_.tensor.copy_(sum_over(reduction, call_.tensor, call_.is_average));
  } catch (...) {
    error_ = std::current_exception();
  }
  Recorder::get().end(call_.record, !error_);
  if (is_worth_a_record(reduction.outcome)) Recorder::get().dump_once();
  if (breaks_group(reduction.outcome)) pending.note_failure();
}

bool SparseTask::wait(std::chrono::milliseconds timeout) {
  if (SparseReducer::of_this_thread == reducer_ && !isCompleted()) {
    refuse(
        "a callback of an all_reduce of sparse tensors waits for another one of its group, which "
        "begins only after it");
  }
  return Work::wait(timeout);
}

void SparseTask::complete_future() noexcept {
  try {
    // The user may have completed the future already.
    if (error_) {
      future_->setErrorIfNeeded(error_);
    } else if (!future_->completed()) {
      future_->markCompleted(c10::IValue(Tensors{call_.tensor}));
    }
  } catch (const std::exception& callback) {
    TORCH_WARN("xylem: a callback of a future failed: ", callback.what());
  }
}

void check_sparse(const at::Tensor& tensor, const ReduceOp& op) {
  if (tensor.layout() != at::kSparse || !tensor.device().is_cpu()) {
    refuse(c10::str("all_reduce: a tensor of layout ", tensor.layout(), " on ", tensor.device(),
                    "; of sparse ones, COO tensors in the CPU's memory are reduced"));
  }
  if (op.op != RedOp::sum && op.op != RedOp::avg) {
    check(failure(Code::unsupported,
                  c10::str(name(op.op), " of sparse tensors; they are summed or averaged")));
  }
  if (tensor.dim() > static_cast<std::int64_t>(kMostDimensions)) {
    check(failure(Code::unsupported, c10::str("all_reduce of a sparse tensor of ", tensor.dim(),
                                              " dimensions; at most ", kMostDimensions)));
  }
}

thread_local const SparseReducer* SparseReducer::of_this_thread = nullptr;

c10::intrusive_ptr<c10d::Work> SparseReducer::reduce(SparseTask::Call call) {
  c10::intrusive_ptr<SparseTask> task;
  {
    const Lock lock(mutex_);
    if (is_closed_) refuse("the group has been destroyed");
    if (!seat_exchange_) begin_seat_exchange(call.timeout);
    if (!thread_.joinable()) {
      thread_ = std::thread([self = shared_from_this()] { self->run(); });
    }
    call.number = called_ + 1;
    call.group = pending_->id();
    call.label = pending_->label_of_calls();
    task =
        c10::make_intrusive<SparseTask>(static_cast<int>(parent_.rank()), std::move(call), *this);
    tasks_.push_back(task);
    ++called_;
  }
  changed_.notify_all();
  return task;
}

void SparseReducer::begin_seat_exchange(std::chrono::milliseconds timeout) {
  const auto job = job_.lock();
  if (!job) refuse("the group has been destroyed");
  seat_exchange_ = std::make_unique<SeatExchange>();
  SeatExchange& exchange = *seat_exchange_;
  // A rank that gets no seat announces the seat number 0. Then form() fails on all ranks.
  if (auto seat = job->runtime.take_seat()) exchange.seat = *std::move(seat);
  exchange.mine.seat = exchange.seat.number();
  fill_at_random(&exchange.mine.number, sizeof exchange.mine.number);
  exchange.all.resize(parent_.size());
  constexpr std::size_t kWords = sizeof(SeatExchange::Rank) / sizeof(std::uint64_t);
  exchange.gathered = parent_.all_gather(
      ConstBuffer(&exchange.mine, kWords, DataType::uint64),
      Buffer(exchange.all.data(), kWords * exchange.all.size(), DataType::uint64));
  exchange.gathered.set_timeout(timeout);
}

Status SparseReducer::form(Communicator& group) {
  if (group.size() != 0) return {};
  XYLEM_TRY(seat_exchange_->gathered.wait());
  const auto job = job_.lock();
  if (!job) return failure(Code::cancelled, "the group was destroyed");
  Formation formation;
  formation.uid = seat_exchange_->all.front().number;
  formation.has_same_memory = true;
  for (std::uint32_t rank = 0; rank < parent_.size(); ++rank) {
    const auto seat = static_cast<std::uint32_t>(seat_exchange_->all[rank].seat);
    if (seat == 0) {
      return failure(Code::exhausted,
                     c10::str("all_reduce of sparse tensors needs a communicator of its own, and "
                              "rank ",
                              parent_.world_rank(rank), " has 1024 already"));
    }
    formation.members.push_back({parent_.world_rank(rank), seat});
  }
  XYLEM_TRY(group, job->runtime.form(std::move(seat_exchange_->seat), formation));
  Recorder::dump_on_failure_of(group);
  const Lock lock(mutex_);
  group_ = group;
  if (is_aborted_) (void)group_.abort(kAborted);
  return {};
}

c10::intrusive_ptr<SparseTask> SparseReducer::take(Status& state) {
  const Lock lock(mutex_);
  while (!is_closed_ && tasks_.empty()) changed_.wait(mutex_);
  if (tasks_.empty()) return {};
  auto task = std::move(tasks_.front());
  tasks_.pop_front();
  is_busy_ = true;
  state = state_;
  return task;
}

void SparseReducer::run() {
  of_this_thread = this;
  Communicator group;
  Status state;
  while (auto task = take(state)) {
    if (state) state = form(group);
    task->carry_out(group, state, *pending_);
    task->end();
    {
      const Lock lock(mutex_);
      is_busy_ = false;
      ++ended_;
      changed_.notify_all();
    }
    // From here on, close() does not wait for this task. So a thread that has waited for the task
    // may destroy the group at any time.
    const Pending::Callbacks callbacks;
    task->complete_future();
    task.reset();
  }
}

SparseCalls SparseReducer::calls_so_far() const noexcept {
  if (of_this_thread == this) return {};
  const Lock lock(mutex_);
  if (ended_ == called_) return {};
  return {shared_from_this(), called_};
}

bool SparseCalls::ended() const noexcept { return !reducer || reducer->ended_ >= count; }

bool SparseCalls::are_of_this_thread() const noexcept {
  return reducer && SparseReducer::of_this_thread == reducer.get();
}

void SparseCalls::wait(Deadline deadline) const noexcept {
  if (!reducer || are_of_this_thread()) return;
  const Lock lock(reducer->mutex_);
  while (!ended() && reducer->changed_.wait_until(reducer->mutex_, deadline)) {
  }
}

void SparseReducer::abort() noexcept {
  const Lock lock(mutex_);
  is_aborted_ = true;
  (void)group_.abort(kAborted);
}

void SparseReducer::close() noexcept {
  constexpr std::chrono::seconds kPatience{5};
  constexpr const char* kWhy = "the group was destroyed while sparse tensors were reduced";
  const Lock lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
  // If a callback of a task calls close(), the calling thread is the one that executes the tasks.
  // No task would end while this thread waits, so it does not wait.
  const auto patience = of_this_thread == this ? std::chrono::seconds(0) : kPatience;
  const Deadline deadline = Deadline::after(patience);
  while ((is_busy_ || !tasks_.empty()) && changed_.wait_until(mutex_, deadline)) {
  }
  if (is_busy_ || !tasks_.empty()) {
    // The remaining tasks fail with `cancelled`. Without `state_`, they could fail with
    // `invalid_argument`, since the runtime may have shut down.
    state_ = failure(Code::cancelled, kWhy);
    is_aborted_ = true;
    (void)group_.abort(kWhy);
    return;
  }
  // Destroying the communicator releases its seat, and later calls of other ranks on it fail.
  Communicator group = group_;
  (void)group.destroy();
  if (seat_exchange_) seat_exchange_->seat = Seat();
}

void SparseReducer::stop() noexcept {
  std::thread thread;
  {
    const Lock lock(mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  // A thread that runs callbacks must not join another one, as in Pending::stop(). The reducer's
  // own thread cannot join itself; it may call stop() because destroying the tensors of a task may
  // destroy the group.
  if (of_this_thread == this || Pending::Callbacks::are_running()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace xylem::pytorch
