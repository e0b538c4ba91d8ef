// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d under way. It is made of Xylem's operations, of the tensors that these
// use, and of what is left to do when they have ended, such as copying results to where the caller
// wants them.
//
//   begun ──(its operations end)──► settled, by whoever asks first: ───────────────► fulfilled
//                                   wait(), isCompleted(),                          (its futures)
//                                   the thread that serves futures,
//                                   or a later call on the group, which does not fulfil:
//                                   callbacks do not run within others' calls
#pragma once

#include "tensors.h"
#include "xylem/xylem.h"

#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xylem::pytorch {

class Task;
class Pending;

using TaskPtr = c10::intrusive_ptr<Task>;

/// Messages are no collectives: a barrier does not wait for them.
constexpr bool is_message(c10d::OpType type) noexcept {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}
using Works = c10::SmallVector<xylem::Work, 1>;

/// A copy to be made once the operations have ended well.
struct Landing {
  at::Tensor memory;
  at::Tensor tensor;
};

/// What a call consists of once it has been begun.
struct Begun {
  Works works;
  Works awaited;                  ///< Others' operations that must have ended, too.
  std::vector<TaskPtr> parts;     ///< Tasks that it stands for.
  Tensors outputs;                ///< What result() and the future give.
  Tensors kept;                   ///< What else the operations use.
  std::vector<Landing> landings;  ///< From memory of ours to the caller's tensors.
};

/// What a task is called in errors and by profilers.
struct TaskName {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "xylem:unknown";  ///< Static.
  std::uint64_t sequence = 0;           ///< Of collectives, in their group.
  std::uint64_t record = 0;             ///< The recorder's.
};

/// Any thread may ask and wait, several at once.
class Task final : public c10d::Work {
 public:
  Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs);

  /// Takes what was begun, once. The tensors live until it has ended, whatever becomes of the
  /// task's owners.
  void take(Begun begun);
  /// Before take().
  void set_record(std::uint64_t record) noexcept { name_.record = record; }
  /// The operations; never changes once taken.
  const Works& works() const noexcept { return begun_.works; }
  const Tensors& outputs() const noexcept { return begun_.outputs; }
  const TaskName& name() const noexcept { return name_; }
  /// Whether its operations have ended; moves nothing.
  bool ended() const noexcept;
  /// Settles it if it has ended; whether it has been settled.
  bool settle_if_ended() noexcept;
  /// Only once it has ended.
  void settle() noexcept;
  /// Completes the futures, and so runs their callbacks, once; who comes second waits for that of
  /// the values, not for callbacks. Only once settled.
  void fulfil() noexcept;
  /// Waits until it has ended, at most so long.
  void wait_for_end(std::chrono::nanoseconds limit) const noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  Tensors result() override;
  void synchronize() override { wait(); }
  /// Throws the task's error. Where `timeout` passes first it throws, too, and the task goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return name_.sequence; }

 private:
  friend class Pending;
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  template <typename Visit>
  void for_each_work(const Visit& visit) const {
    for (const xylem::Work& work : begun_.awaited) visit(work);
    for (const xylem::Work& work : begun_.works) visit(work);
  }
  /// A future to be completed with the task: now, or by the thread that serves them.
  FuturePtr promise(FuturePtr& future, c10::TypePtr type);
  void complete(const FuturePtr& values, const FuturePtr& results) const noexcept;

  TaskName name_;
  const std::shared_ptr<Pending> pending_;
  Begun begun_;
  std::atomic<bool> settled_{false};
  std::mutex settling_;
  FuturePtr values_, results_;  ///< Made before it was settled, if somebody asked for them.
  bool is_fulfilled_ = false;
  std::list<TaskPtr>::iterator place_;  ///< In `pending_`.
  bool is_listed_ = false;
};

/// The tasks of a group that go on. It keeps them, and so their tensors, until they are settled;
/// and it has threads that settle those whose futures somebody has asked for.
class Pending : public std::enable_shared_from_this<Pending> {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() = default;

  void add(const TaskPtr& task);
  void remove(Task& task) noexcept;
  /// Settles some of the tasks that have ended without anybody asking, and runs no callbacks.
  void sweep() noexcept;
  /// Operations that go on of tasks of these types.
  template <typename Choose>
  Works works_of(const Choose& choose) const {
    Works works;
    const std::lock_guard lock(mutex_);
    for (const TaskPtr& task : tasks_) {
      if (choose(task->name().type)) works.append(task->works().begin(), task->works().end());
    }
    return works;
  }
  void note_failure() noexcept { has_failed_.store(true, std::memory_order_relaxed); }
  /// Whether a task has failed.
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_relaxed); }
  /// Fulfils the task when it has ended. Collectives are fulfilled in their order, so callbacks
  /// that call others call them in the same order on all ranks.
  /// False where it has been settled and nothing is before it: the caller fulfils it.
  bool serve(const TaskPtr& task);
  /// Waits until every task has been settled; they have been aborted, or end by themselves.
  void drain() noexcept;
  /// Ends the threads, which fulfil what they were given: everything has ended. Not with Python's
  /// lock.
  void stop() noexcept;

 private:
  /// Futures of calls that a callback makes are served by the next level's thread: the callback
  /// may wait for them. Those of level 0 are of everybody else's calls.
  struct Level {
    std::vector<TaskPtr> served;  ///< Oldest first; some may have been fulfilled by others.
    bool is_fulfilling = false;   ///< Callbacks may be running.
    std::thread thread;
  };

  /// The level that serves the calls of this thread.
  std::size_t level_of_caller() const noexcept;

  void run(std::size_t own);

  mutable std::mutex mutex_;
  std::list<TaskPtr> tasks_;
  std::atomic<std::size_t> listed_{0};  ///< How many these are.
  std::condition_variable changed_;
  std::deque<Level> levels_;  ///< None before the first future.
  bool stop_ = false;
  std::atomic<bool> has_failed_{false};
};

}  // namespace xylem::pytorch
