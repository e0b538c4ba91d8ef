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

/// The first that failed.
Status outcome_of(const Works& works) {
  for (const xylem::Work& work : works) {
    if (Status status = work.status(); !status) return status;
  }
  return {};
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

/// How many levels there are up to this thread's own, if it serves futures.
thread_local std::size_t levels_below = 0;

/// Takes out what may be fulfilled: messages that have ended, and collectives that have, up to the
/// first that has not.
std::vector<TaskPtr> take_ended(std::vector<TaskPtr>& served) {
  bool goes_on = false;
  std::vector<TaskPtr> ended, rest;
  for (TaskPtr& task : served) {
    const bool is_free = is_message(task->name().type) || !goes_on;
    if (is_free && task->ended()) {
      ended.push_back(std::move(task));
    } else {
      goes_on = goes_on || !is_message(task->name().type);
      rest.push_back(std::move(task));
    }
  }
  served = std::move(rest);
  return ended;
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
  if (settled_.load(std::memory_order_acquire)) return;
  // Each under its own lock, and its callbacks under none.
  for (const TaskPtr& part : begun_.parts) part->settle();
  const Status outcome = outcome_of(begun_.works);
  Recorder::get().end(name_.record, outcome.is_ok());
  // Before anybody learns of it, and ends the process.
  if (outcome.code() == Code::timed_out) dump_once();
  // What a call excludes is no failure of the group.
  if (!outcome && outcome.code() != Code::invalid_argument && outcome.code() != Code::unsupported) {
    pending_->note_failure();
  }
  // Tensors may need Python's lock to end, which who waits for ours may hold.
  Tensors kept;
  std::vector<Landing> landings;
  {
    const std::lock_guard lock(settling_);
    if (settled_.load(std::memory_order_relaxed)) return;
    std::exception_ptr error = outcome ? nullptr : exception_of(outcome);
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
    Work::finish(error);
    settled_.store(true, std::memory_order_release);
  }
  pending_->remove(*this);  // Whoever asked has a reference.
}

void Task::fulfil() noexcept {
  for (const TaskPtr& part : begun_.parts) part->fulfil();
  FuturePtr values, results;
  bool is_first = false;
  {
    const std::lock_guard lock(settling_);
    values = values_;
    results = results_;
    is_first = !std::exchange(is_fulfilled_, true);
  }
  if (is_first) {
    complete(values, results);
  } else if (values) {
    values->wait();
  }
}

void Task::wait_for_end(std::chrono::nanoseconds limit) const noexcept {
  const Deadline deadline = Deadline::after(limit);
  for_each_work([&](const xylem::Work& work) { (void)work.wait_for(deadline.left()); });
}

bool Task::isCompleted() {
  if (!settle_if_ended()) return false;
  fulfil();
  return true;
}

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
  } else if (wait_for_end(timeout); !settle_if_ended()) {
    check(failure(Code::timed_out,
                  c10::str(name_.title, " has not completed within ", timeout.count(),
                           " ms; it goes on: wait again, or abort the group")));
  }
  fulfil();
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
  bool is_late = false;
  {
    const std::lock_guard lock(settling_);
    is_late = is_fulfilled_;
    if (!is_late && future) return future;
    if (!is_late) future = made;
  }
  if (is_late) {
    const bool is_values = &future == &values_;
    complete(is_values ? made : nullptr, is_values ? nullptr : made);
  } else if (!pending_->serve(TaskPtr::reclaim_copy(this))) {
    fulfil();
  }
  return made;
}

void Task::complete(const FuturePtr& values, const FuturePtr& results) const noexcept {
  const std::exception_ptr error = exception();
  try {
    // The user may have completed it himself.
    if (values && error) {
      values->setErrorIfNeeded(error);
    } else if (values && !values->completed()) {
      values->markCompleted(c10::IValue(begun_.outputs));
    }
    if (results && !results->completed()) {
      const bool is_late = outcome_of(begun_.works).code() == Code::timed_out;
      const auto result = is_late ? c10d::WorkResult::TIMEOUT
                          : error ? c10d::WorkResult::COMM_ERROR
                                  : c10d::WorkResult::SUCCESS;
      results->markCompleted(c10::IValue(static_cast<std::uint8_t>(result)));
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
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (Level& level : levels_) threads.push_back(std::move(level.thread));
  }
  changed_.notify_all();
  for (std::thread& thread : threads) {
    // A future's callback may have dropped the group.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void Pending::add(const TaskPtr& task) {
  const std::lock_guard lock(mutex_);
  task->place_ = tasks_.insert(tasks_.end(), task);
  task->is_listed_ = true;
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void Pending::remove(Task& task) noexcept {
  TaskPtr last;  // It ends outside of the lock.
  const std::lock_guard lock(mutex_);
  if (!std::exchange(task.is_listed_, false)) return;
  last = std::move(*task.place_);
  tasks_.erase(task.place_);
  listed_.store(tasks_.size(), std::memory_order_relaxed);
}

void Pending::sweep() noexcept {
  if (listed_.load(std::memory_order_relaxed) == 0) return;
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

std::size_t Pending::level_of_caller() const noexcept {
  if (levels_below < 2) return levels_below;
  // A chain of callbacks, each begun by the one before, shall not climb for ever.
  const auto others = std::min(levels_below - 1, levels_.size());
  const bool goes_on = std::any_of(levels_.begin(), levels_.begin() + static_cast<long>(others),
                                   [](const Level& level) { return level.is_fulfilling; });
  return goes_on ? levels_below : 0;
}

bool Pending::serve(const TaskPtr& task) {
  const bool is_settled = task->settled_.load(std::memory_order_acquire);
  {
    const std::lock_guard lock(mutex_);
    const std::size_t level = level_of_caller();
    const bool is_next = is_message(task->name().type) || level >= levels_.size() ||
                         (levels_[level].served.empty() && !levels_[level].is_fulfilling);
    if (is_settled && (is_next || stop_)) return false;
    while (levels_.size() <= level) {
      const std::size_t made = levels_.size();
      levels_.emplace_back().thread =
          std::thread([self = shared_from_this(), made] { self->run(made); });
    }
    levels_[level].served.push_back(task);
  }
  changed_.notify_all();
  return true;
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

void Pending::run(std::size_t own) {
  levels_below = own + 1;
  auto look = kFirstLook;
  std::unique_lock lock(mutex_);
  Level& level = levels_[own];
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !level.served.empty(); });
    if (level.served.empty()) return;
    TaskPtr oldest = level.served.front();
    lock.unlock();
    // Whoever waits moves all operations of the group forward, so waiting for the oldest does.
    oldest->wait_for_end(look);
    oldest.reset();
    lock.lock();
    std::vector<TaskPtr> ended = take_ended(level.served);
    look = ended.empty() ? std::min(2 * look, kLongestLook) : kFirstLook;
    level.is_fulfilling = true;
    lock.unlock();
    for (const TaskPtr& task : ended) {
      task->settle();
      task->fulfil();
    }
    ended.clear();
    lock.lock();
    level.is_fulfilling = false;
  }
}

}  // namespace xylem::pytorch
