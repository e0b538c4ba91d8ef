// SPDX-License-Identifier: Apache-2.0
#include "task.h"

#include "failure.h"
#include "recorder.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

/// How long the thread that serves futures waits for the oldest task before it looks at the others:
/// ever longer, since what does not end soon may not end for long, and waiting costs a core at
/// first.
constexpr std::chrono::microseconds kFirstLook{200}, kLongestLook{20'000};
/// How many tasks each new one looks at, so that what nobody waits for does not pile up.
constexpr int kSwept = 2;

std::exception_ptr error_of(const Works& works) {
  for (const xylem::Work& work : works) {
    if (Status status = work.status(); !status) return exception_of(status);
  }
  return nullptr;
}

c10d::WorkResult result_of(const Works& works, const std::exception_ptr& error) {
  for (const xylem::Work& work : works) {
    if (work.status().code() == Code::timed_out) return c10d::WorkResult::TIMEOUT;
  }
  return error ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
}

/// The first time-out tells most.
void dump_once() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      TORCH_WARN("xylem: the last calls are in ", Recorder::get().dump());
    } catch (const std::exception& error) {
      TORCH_WARN(error.what());
    }
  });
}

}  // namespace

Task::Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs)
    // What a profiler is told is worth nothing where there is none.
    : Work(rank,
           name.type,
           at::hasCallbacks() ? name.title : nullptr,
           at::hasCallbacks() ? std::optional<Tensors>(inputs) : std::nullopt),
      name_(name),
      pending_(std::move(pending)) {}

void Task::take(Begun begun) {
  begun_ = std::move(begun);
  if (ended()) return settle();
  pending_->add(TaskPtr::reclaim_copy(this));
}

bool Task::ended() const noexcept {
  bool all = true;
  for_each_work([&](const xylem::Work& work) { all = all && work.ended(); });
  return all;
}

bool Task::settle_if_ended() noexcept {
  if (settled_.load(std::memory_order_acquire)) return true;
  bool all = true;
  for_each_work([&](const xylem::Work& work) { all = all && work.test(); });
  if (all) settle();
  return all;
}

void Task::settle() noexcept {
  // Each under its own lock, and its callbacks under none.
  for (const TaskPtr& part : begun_.parts) part->settle();
  // Tensors may need Python's lock to end, which who waits for ours may hold.
  Tensors kept;
  std::vector<Landing> landings;
  FuturePtr values, results;
  {
    const std::lock_guard lock(settling_);
    if (settled_.load(std::memory_order_relaxed)) return;
    std::exception_ptr error = error_of(begun_.works);
    if (error) pending_->note_failure();
    Recorder::get().end(name_.record, !error);
    try {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      if (!error) {
        for (const Landing& landing : begun_.landings) landing.tensor.copy_(landing.memory);
      }
      for (const TaskPtr& part : begun_.parts) {
        if (!error) error = part->exception();
      }
    } catch (...) {
      error = std::current_exception();
    }
    kept.swap(begun_.kept);
    landings.swap(begun_.landings);
    values.swap(values_);
    results.swap(results_);
    Work::finish(error);
    settled_.store(true, std::memory_order_release);
  }
  // Before its callbacks, which may destroy the group. Whoever asked has a reference.
  pending_->remove(*this);
  if (result_of(begun_.works, nullptr) == c10d::WorkResult::TIMEOUT) dump_once();
  fulfil(values, results);
}

bool Task::await(std::chrono::nanoseconds limit) noexcept {
  const Deadline deadline = Deadline::after(limit);
  for_each_work([&](const xylem::Work& work) { (void)work.wait_for(deadline.left()); });
  return settle_if_ended();
}

bool Task::isCompleted() { return settle_if_ended(); }

bool Task::isSuccess() const { return settled_.load(std::memory_order_acquire) && !exception(); }

int Task::sourceRank() const {
  if (name_.type != c10d::OpType::RECVANYSOURCE && name_.type != c10d::OpType::RECV) {
    return Work::sourceRank();
  }
  return static_cast<int>(begun_.works.front().source());
}

Tensors Task::result() {
  if (!isCompleted()) refuse(c10::str(name_.title, ": result() before the work has completed"));
  return begun_.outputs;
}

bool Task::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) {
    for_each_work([](const xylem::Work& work) { (void)work.wait(); });
    settle();
  } else if (!await(timeout)) {
    check(failure(Code::timed_out,
                  c10::str(name_.title, " has not completed within ", timeout.count(),
                           " ms; it goes on: wait again, or abort the group")));
  }
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void Task::abort() {
  check(failure(Code::unsupported,
                "one operation cannot be aborted: abort its group "
                "(torch.distributed.distributed_c10d._abort_process_group)"));
}

Task::FuturePtr Task::promise(FuturePtr& future, c10::TypePtr type) {
  auto made = c10::make_intrusive<c10::ivalue::Future>(std::move(type));
  bool is_settled = false;
  {
    const std::lock_guard lock(settling_);
    is_settled = settled_.load(std::memory_order_relaxed);
    if (!is_settled && future) return future;
    if (!is_settled) future = made;
  }
  if (is_settled) {
    const bool is_values = &future == &values_;
    fulfil(is_values ? made : nullptr, is_values ? nullptr : made);
  } else {
    pending_->serve(c10::intrusive_ptr<Task>::reclaim_copy(this));
  }
  return made;
}

void Task::fulfil(const FuturePtr& values, const FuturePtr& results) const noexcept {
  const std::exception_ptr error = exception();
  try {
    // The user may have completed it himself.
    if (values && error) {
      values->setErrorIfNeeded(error);
    } else if (values && !values->completed()) {
      values->markCompleted(c10::IValue(begun_.outputs));
    }
    if (results && !results->completed()) {
      const auto result = static_cast<std::uint8_t>(result_of(begun_.works, error));
      results->markCompleted(c10::IValue(result));
    }
  } catch (const std::exception& callback) {
    TORCH_WARN("xylem: a callback of a future failed: ", callback.what());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFuture() {
  return promise(values_, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFutureResult() {
  return promise(results_, c10::IntType::get());
}

void Pending::stop() noexcept {
  std::vector<TaskPtr> dropped;  // They end outside of the lock.
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(served_);
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  // A future's callback may have dropped the group.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Pending::add(const TaskPtr& task) {
  const std::lock_guard lock(mutex_);
  task->place_ = tasks_.insert(tasks_.end(), task);
  task->is_listed_ = true;
}

void Pending::remove(Task& task) noexcept {
  TaskPtr last;  // It ends outside of the lock.
  const std::lock_guard lock(mutex_);
  if (!std::exchange(task.is_listed_, false)) return;
  last = std::move(*task.place_);
  tasks_.erase(task.place_);
}

void Pending::sweep() noexcept {
  c10::SmallVector<TaskPtr, kSwept> ended;
  {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < kSwept && !tasks_.empty(); ++i) {
      if (tasks_.front()->ended()) ended.push_back(tasks_.front());
      // The next time others: those in front may go on for ever.
      tasks_.splice(tasks_.end(), tasks_, tasks_.begin());
    }
  }
  for (const TaskPtr& task : ended) task->settle();
}

void Pending::serve(const TaskPtr& task) {
  {
    const std::lock_guard lock(mutex_);
    served_.push_back(task);
    if (!thread_.joinable() && !stop_) {
      thread_ = std::thread([self = shared_from_this()] { self->run(); });
    }
  }
  changed_.notify_all();
}

void Pending::drain() noexcept {
  while (true) {
    TaskPtr task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) return;
      task = tasks_.front();
    }
    for (const xylem::Work& work : task->works()) (void)work.wait();
    task->settle();
    remove(*task);  // Another thread may be about to.
  }
}

void Pending::run() {
  std::vector<TaskPtr> tasks;
  auto look = kFirstLook;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !served_.empty() || !tasks.empty(); });
      if (stop_) return;
      if (!served_.empty()) look = kFirstLook;
      tasks.insert(tasks.end(), std::move_iterator(served_.begin()),
                   std::move_iterator(served_.end()));
      served_.clear();
    }
    // Whoever waits moves all operations of the group forward, so waiting for the oldest does.
    tasks.front()->await(look);
    const auto settled =
        std::erase_if(tasks, [](const TaskPtr& t) { return t->settle_if_ended(); });
    look = settled > 0 ? kFirstLook : std::min(2 * look, kLongestLook);
  }
}

}  // namespace xylem::pytorch
