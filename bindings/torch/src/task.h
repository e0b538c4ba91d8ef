// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d under way. It is made of Xylem's operations, of the tensors that these
// use, and of what is left to do when they have ended, such as copying results to where the caller
// wants them.
//
//   begun ──(its operations end)──► settled, by whoever asks first: wait(), isCompleted(), the
//   thread
//                                   that serves futures, or the next call on the group
#pragma once

#include "tensors.h"
#include "xylem/xylem.h"

#include <c10/util/SmallVector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
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
using Works = c10::SmallVector<xylem::Work, 1>;

/// What a call consists of once it has been begun.
struct Begun {
  Works works;
  Tensors outputs;               ///< What result() and the future give.
  Tensors kept;                  ///< What else the operations use.
  std::function<void()> finish;  ///< Once they have ended well. May throw.
};

/// What a task is called in errors and by profilers.
struct TaskName {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "xylem:unknown";  ///< Static.
  std::uint64_t sequence = 0;           ///< Of collectives, in their group.
};

/// Any thread may ask and wait, several at once.
class Task final : public c10d::Work {
 public:
  Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs);

  /// Takes what was begun, once. The tensors live until it has ended, whatever becomes of the
  /// task's owners.
  void take(Begun begun);
  /// The operations; never changes once taken.
  const Works& works() const noexcept { return begun_.works; }
  const Tensors& outputs() const noexcept { return begun_.outputs; }
  /// Whether the task is between two ranks, and so none of those that a barrier waits for.
  bool is_message() const noexcept;
  /// Settles it if all operations have ended; whether it has been.
  bool settle_if_ended() noexcept;
  /// Waits until it has been settled, at most so long; whether it has.
  bool await(std::chrono::nanoseconds limit) noexcept;

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

  void settle() noexcept;
  /// A future to be completed with the task: now, or by the thread that serves them.
  FuturePtr promise(FuturePtr& future, c10::TypePtr type);
  void fulfil(const FuturePtr& values, const FuturePtr& results) const;

  const TaskName name_;
  const std::shared_ptr<Pending> pending_;
  Begun begun_;
  std::atomic<bool> settled_{false};
  std::mutex settling_;
  FuturePtr values_, results_;
  std::list<TaskPtr>::iterator place_;  ///< In `pending_`.
  bool is_listed_ = false;
};

/// The tasks of a group that go on. It keeps them, and so their tensors, until they are settled;
/// and it has a thread that settles those whose futures somebody has asked for.
class Pending : public std::enable_shared_from_this<Pending> {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() = default;

  void add(const TaskPtr& task);
  void remove(Task& task) noexcept;
  /// Settles some of the tasks that have ended without anybody asking.
  void sweep() noexcept;
  /// Operations of collectives that go on.
  Works collectives() const;
  /// Settles the task as soon as it has ended.
  void serve(const TaskPtr& task);
  /// Waits until every task has been settled; they have been aborted, or end by themselves.
  void drain() noexcept;
  /// Ends the thread; futures that nobody has completed are left so. Not with Python's lock.
  void stop() noexcept;

 private:
  void run();

  mutable std::mutex mutex_;
  std::list<TaskPtr> tasks_;
  std::vector<TaskPtr> served_;  ///< Oldest first; some may have been settled by others.
  std::condition_variable changed_;
  std::thread thread_;  ///< Not before the first future.
  bool stop_ = false;
};

}  // namespace xylem::pytorch
