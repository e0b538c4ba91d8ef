// SPDX-License-Identifier: Apache-2.0
#include "task.h"

#include "failure.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

/// How long the thread that serves futures waits for the oldest task before it looks at the others.
constexpr std::chrono::microseconds kLook{200};
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

}  // namespace

Task::Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs)
    : Work(rank, name.type, name.title, std::optional<Tensors>(inputs)),
      name_(name),
      pending_(std::move(pending)) {}

void Task::take(Begun begun) {
  begun_ = std::move(begun);
  if (settle_if_ended()) return;
  pending_->add(c10::intrusive_ptr<Task>::reclaim_copy(this));
}

bool Task::is_message() const noexcept {
  return name_.type == c10d::OpType::SEND || name_.type == c10d::OpType::RECV ||
         name_.type == c10d::OpType::RECVANYSOURCE;
}

bool Task::settle_if_ended() noexcept {
  if (settled_.load(std::memory_order_acquire)) return true;
  const auto has_ended = [](const xylem::Work& work) { return work.test(); };
  if (!std::ranges::all_of(begun_.works, has_ended)) return false;
  settle();
  return true;
}

void Task::settle() noexcept {
  // Tensors may need Python's lock to end, which who waits for ours may hold.
  Tensors kept;
  std::function<void()> finish;
  FuturePtr values, results;
  {
    const std::lock_guard lock(settling_);
    if (settled_.load(std::memory_order_relaxed)) return;
    std::exception_ptr error = error_of(begun_.works);
    if (!error && begun_.finish) {
      try {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        begun_.finish();
      } catch (...) {
        error = std::current_exception();
      }
    }
    kept.swap(begun_.kept);
    finish.swap(begun_.finish);
    values.swap(values_);
    results.swap(results_);
    Work::finish(error);
    settled_.store(true, std::memory_order_release);
  }
  fulfil(values, results);
  pending_->remove(*this);
}

bool Task::await(std::chrono::nanoseconds limit) noexcept {
  const Deadline deadline = Deadline::after(limit);
  for (const xylem::Work& work : begun_.works) {
    if (settled_.load(std::memory_order_acquire)) return true;
    (void)work.wait_for(deadline.left());
  }
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
    for (const xylem::Work& work : begun_.works) {
      if (settled_.load(std::memory_order_acquire)) break;
      (void)work.wait();
    }
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

void Task::fulfil(const FuturePtr& values, const FuturePtr& results) const {
  const std::exception_ptr error = exception();
  if (values && error) {
    values->setErrorIfNeeded(error);
  } else if (values) {
    values->markCompleted(c10::IValue(begun_.outputs));
  }
  if (results) {
    results->markCompleted(c10::IValue(static_cast<std::uint8_t>(result_of(begun_.works, error))));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFuture() {
  return promise(values_, c10::ListType::ofTensors());
}

c10::intrusive_ptr<c10::ivalue::Future> Task::getFutureResult() {
  return promise(results_, c10::IntType::get());
}

void Pending::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
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
  c10::SmallVector<TaskPtr, kSwept> oldest;
  {
    const std::lock_guard lock(mutex_);
    for (const TaskPtr& task : tasks_) {
      if (oldest.size() == kSwept) break;
      oldest.push_back(task);
    }
  }
  for (const TaskPtr& task : oldest) {
    const auto has_ended = [](const xylem::Work& work) {
      return work.status().code() != Code::busy;
    };
    if (std::ranges::all_of(task->works(), has_ended)) task->settle();
  }
}

Works Pending::collectives() const {
  Works works;
  const std::lock_guard lock(mutex_);
  for (const TaskPtr& task : tasks_) {
    if (!task->is_message()) works.append(task->works().begin(), task->works().end());
  }
  return works;
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
  std::unique_lock lock(mutex_);
  while (!tasks_.empty()) {
    const TaskPtr task = tasks_.front();
    lock.unlock();
    for (const xylem::Work& work : task->works()) (void)work.wait();
    task->settle();
    lock.lock();
  }
}

void Pending::run() {
  std::vector<TaskPtr> tasks;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !served_.empty() || !tasks.empty(); });
    if (stop_) return;
    tasks.insert(tasks.end(), std::move_iterator(served_.begin()),
                 std::move_iterator(served_.end()));
    served_.clear();
    lock.unlock();
    // Whoever waits moves all operations of the group forward, so waiting for the oldest does.
    tasks.front()->await(kLook);
    std::erase_if(tasks, [](const TaskPtr& task) { return task->settle_if_ended(); });
    lock.lock();
  }
}

}  // namespace xylem::pytorch
