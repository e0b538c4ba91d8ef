// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d. It consists of Xylem's operations, the tensors that they use, and the
// work left to do after they have ended, such as copying results into the caller's tensors.
//
//   begun ──(its operations end)──► settled ──────────────────────────────────► fulfilled
//
// A call on a device may be in the order of streams (OnDevice). Then wait() makes the current
// stream wait and returns, and the futures of collectives are complete at once, with events for
// which streams wait. For other calls on a device, threads wait, as they do for calls on the CPU.
// The thread that finds that the operations have ended enqueues the copies on a stream, and the
// task ends when they have completed.
//
// The first of these threads settles the task: one in wait() or isCompleted(), the one that serves
// futures, or one in a later call on the group. Fulfilling completes the futures and runs their
// callbacks. A later call on the group does not complete them, so that callbacks never run within
// unrelated calls.
#pragma once

#include "on_device.h"
#include "tensors.h"
#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xylem::pytorch {

class Task;
class Pending;
class SparseReducer;

using TaskPtr = c10::intrusive_ptr<Task>;

/// Messages are not collectives: a barrier does not wait for them.
constexpr bool is_message(c10d::OpType type) noexcept {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}
/// Sparse all_reduces that were called before another call (SparseReducer::calls_so_far()). Empty
/// if it has no reducer. Thread-safe.
struct SparseCalls {
  std::shared_ptr<const SparseReducer> reducer;
  std::uint64_t count = 0;  ///< How many calls of the reducer there were.

  bool ended() const noexcept;
  /// Whether this thread is the one that executes them, so that it would wait for itself.
  bool are_of_this_thread() const noexcept;
  /// Waits until they have ended. Each has a time limit of its own.
  void wait(Deadline deadline) const noexcept;
};

/// The contents of a call after it has begun.
struct StartedCall {
  Works works;
  Works awaited;                   ///< Operations of other tasks that must have ended as well.
  SparseCalls sparse;              ///< The same for calls on sparse tensors.
  std::vector<TaskPtr> parts;      ///< Tasks that this task combines.
  Tensors outputs;                 ///< The tensors that result() and the future return.
  Tensors kept;                    ///< Other tensors that the operations use.
  std::vector<OutputCopy> copies;  ///< Copies from internal memory to the caller's tensors.
  /// Null for a call on tensors in CPU memory.
  std::unique_ptr<OnDevice> device;
};

/// Names of a task, for errors and profilers.
struct TaskName {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "xylem:unknown";  ///< A static string.
  std::uint64_t sequence = 0;           ///< Number of the collective in its group.
  std::uint64_t record = 0;             ///< Id for the recorder.
};

/// Where a call is made: in the program, or in a callback of another call.
struct Origin {
  /// Identifies the other call: the same number at all ranks of its group. 0: the program.
  std::uint64_t label = 0;
  std::uint64_t group = 0;  ///< The group of the other call (Pending::id()).

  bool is_program() const noexcept { return label == 0; }
  /// The label of callbacks whose call is not known, or has no number that is the same at all
  /// ranks, such as a message. Other labels are less.
  static constexpr std::uint64_t kUnknown = 4'000'000'000'000;
  /// Callbacks of a collective that was called at `origin`. If this is the program, `number` counts
  /// the collectives of this kind that the program has called on the group; otherwise those that
  /// callbacks have called.
  static Origin callback_of(Origin origin,
                            bool is_sparse,
                            std::uint64_t number,
                            std::uint64_t group) {
    constexpr std::uint64_t kInCallback = 1'000'000'000'000, kSparse = 2'000'000'000'000;
    return {number + (origin.is_program() ? 0 : kInCallback) + (is_sparse ? kSparse : 0), group};
  }
};

/// One call of c10d. Thread-safe; several threads may wait at the same time.
class Task final : public c10d::Work {
 public:
  Task(int rank, TaskName name, std::shared_ptr<Pending> pending, const Tensors& inputs);

  /// Takes over the operations and tensors of the call. Call it once. If the operations have not
  /// ended yet, `pending` then holds the task until they have. So the tensors live that long even
  /// if nobody else holds the task.
  void adopt(StartedCall begun);
  /// Sets these parts of the name. Call it before take().
  void set_numbers(std::uint64_t sequence, std::uint64_t record) noexcept {
    name_.sequence = sequence;
    name_.record = record;
  }
  /// Call this before take() if the limit of the call is its own and not that of the group.
  void set_own_limit() noexcept { has_own_limit_ = true; }
  /// Sets how many collectives, up to this one, the program or callbacks have called on the group.
  /// Call it before the task is returned to the user.
  void set_number(std::uint64_t number) noexcept { number_ = number; }
  /// The operations. They never change after take().
  const Works& works() const noexcept { return begun_.works; }
  const Works& awaited() const noexcept { return begun_.awaited; }
  const SparseCalls& sparse() const noexcept { return begun_.sparse; }
  const Tensors& outputs() const noexcept { return begun_.outputs; }
  const TaskName& name() const noexcept { return name_; }
  /// Whether the program has made the call, and no callback.
  bool is_of_program() const noexcept { return origin_.is_program(); }
  /// The origin of calls that the callbacks of its futures make. In the order of streams, futures
  /// are complete at once. So their callbacks run within the function that added them, at all
  /// ranks.
  Origin origin_of_callbacks() const noexcept;
  /// Null for a call on tensors in CPU memory.
  const OnDevice* device() const noexcept { return begun_.device.get(); }
  /// Whether the task is a collective, which all ranks call in the same order. Valid after take().
  bool is_ordered() const noexcept;
  /// Whether streams of the device wait for it.
  bool has_stream_waiters() const noexcept {
    return has_stream_waiters_.load(std::memory_order_relaxed);
  }
  bool is_settled() const noexcept { return settled_.load(std::memory_order_acquire); }
  /// Whether its operations have ended, and its copies on a device. Makes no progress.
  bool ended() const noexcept;
  /// Settles the task if it has ended. Returns whether it is settled.
  bool settle_if_ended() noexcept;
  /// Settles the task (see the head of this file). Requires that the task has ended.
  void settle() noexcept;
  /// Completes the futures once, which runs their callbacks. A second caller waits until the future
  /// of the values is complete, but not for callbacks. Requires that the task is settled.
  void complete_futures() noexcept;
  /// Work::wait_for or Work::wait_beside_program.
  using WorkWait = xylem::Status (xylem::Work::*)(std::chrono::nanoseconds) const;
  /// Waits in this way until the task has ended, at most for `limit`.
  void wait_for_end(WorkWait way, std::chrono::nanoseconds limit) noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  Tensors result() override;
  /// Releases Python's lock, and then does the same as wait().
  void synchronize() override;
  /// Throws the task's error. Also throws if `timeout` passes first; the task then continues. In
  /// the order of streams, without a time-out: makes the current stream wait, and throws only if
  /// the task has failed already.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return name_.sequence; }

 private:
  friend class Pending;
  struct Futures {
    FuturePtr values, results;
  };

  template <typename Visit>
  void for_each_work(const Visit& visit) const {
    for (const xylem::Work& work : begun_.awaited) visit(work);
    for (const xylem::Work& work : begun_.works) visit(work);
  }
  bool works_ended() const noexcept;
  /// Whether streams should wait for the task instead of threads.
  bool belongs_in_stream_order() const noexcept;
  /// Makes a stream of the task's device wait for the end of the task.
  void block(const DeviceStream& stream) const;
  void make_current_stream_wait();
  /// Drops the tensors that are only kept for the operations.
  void drop_kept() noexcept;
  /// Enqueues the copies on a stream of the device, unless a thread does so or has done so.
  void enqueue_copies() noexcept;
  /// Calls enqueue_copies() for the task and for its parts, for each of them if its operations have
  /// ended.
  void enqueue_copies_if_ended() noexcept;
  /// Whether the copies have completed.
  bool have_copies_ended() const noexcept;
  /// Lands, and waits for the copies on a device, if the operations have ended.
  void wait_for_copies(Deadline deadline) noexcept;
  /// Why the copies on a device could not be made.
  std::exception_ptr copy_error() const noexcept;
  /// A future that is complete in the order of streams.
  FuturePtr future_in_stream_order();
  /// A future that is completed with the task, either now or by the thread that serves futures.
  FuturePtr future(FuturePtr Futures::*which, c10::TypePtr type);
  void complete(const Futures& futures) const noexcept;

  /// Where the copies on a device are. Those on the CPU are made by settle().
  enum class CopyState : std::uint8_t {
    due,        ///< In `begun_`. The thread that changes this state may take them.
    enqueuing,  ///< A thread is enqueuing them.
    enqueued,   ///< They were enqueued, or this has failed. Also if there are none.
  };

  TaskName name_;
  const Origin origin_;
  std::uint64_t number_ = 0;  ///< See set_number().
  const std::shared_ptr<Pending> pending_;
  StartedCall begun_;
  bool has_own_limit_ = false;
  bool is_in_stream_order_ = false;  ///< Whether streams wait for the task. Set by take().
  std::atomic<bool> settled_{false};
  mutable std::atomic<bool> has_stream_waiters_{false};
  Mutex settling_;
  /// Made on request, before the task is fulfilled.
  Futures futures_ XYLEM_LOCKING(guarded_by(settling_));
  bool has_completed_futures_ XYLEM_LOCKING(guarded_by(settling_)) = false;
  std::list<TaskPtr>::iterator place_;  ///< Position in the list of `pending_`.
  std::atomic<bool> is_listed_{false};
  std::atomic<CopyState> copy_state_{CopyState::enqueued};
  std::exception_ptr
      copy_error_;  ///< See copy_error(). Written before `copy_state_` becomes `given`.
};

}  // namespace xylem::pytorch
