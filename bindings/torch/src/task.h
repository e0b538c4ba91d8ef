// SPDX-License-Identifier: Apache-2.0
//
// Task: one call of c10d. It consists of Xylem's operations, the tensors that they use, and the
// work left to do after they have ended, such as copying results into the caller's tensors.
//
//   begun ──(its operations end)──► settled ──────────────────────────────────► fulfilled
//
// A call on a device may be in the order of streams (on_device.h). Then wait() makes the current
// stream wait for the call and returns. The futures of collectives are then complete from the
// beginning, with events for which streams wait. For other calls on a device, wait() blocks the
// calling thread, as for calls on the CPU. The first thread that finds that the operations have
// ended enqueues the copies on a stream. The task has ended when the copies have completed.
//
// To settle a task is to copy results on the CPU into the caller's tensors and to set the task's
// outcome. The first thread that finds that the task has ended settles it: a thread in wait() or
// isCompleted(), a server of futures (pending.h), or a thread that makes a later call on the group.
// To fulfil a task is to complete its futures, which runs their callbacks. A later call
// on the group fulfils no tasks, so that callbacks never run within unrelated calls.
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

/// Whether the call is a message and not a collective. A barrier does not wait for messages.
constexpr bool is_message(c10d::OpType type) noexcept {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}
/// The sparse all_reduces that were called before some other call (SparseReducer::calls_so_far()).
/// None if `reducer` is null. Thread-safe.
struct SparseCalls {
  std::shared_ptr<const SparseReducer> reducer;
  std::uint64_t count = 0;  ///< Number of calls of the reducer before the other call.

  bool ended() const noexcept;
  /// Whether this thread executes these calls. If so, it must not wait for them.
  bool are_of_this_thread() const noexcept;
  /// Waits until these calls have ended, at most until the deadline.
  void wait(Deadline deadline) const noexcept;
};

/// The operations of a call that has begun, and the tensors that it uses.
struct StartedCall {
  Works works;
  Works awaited;                   ///< Operations of other tasks that must have ended as well.
  SparseCalls sparse;              ///< Calls on sparse tensors that must have ended as well.
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

/// Where a call is made: in the program, or in a callback of a future of another call.
struct Origin {
  /// 0 for the program. Otherwise a number that identifies the other call, equal at all ranks of
  /// its group.
  std::uint64_t label = 0;
  std::uint64_t group = 0;  ///< The group of the other call (Pending::id()).

  bool is_program() const noexcept { return label == 0; }
  /// The label in callbacks whose other call is unknown, or has no number that is equal at all
  /// ranks, as for a message. All other labels are less.
  static constexpr std::uint64_t kUnknown = 4'000'000'000'000;
  /// The origin of calls in callbacks of a collective that was itself called at `origin`.
  /// Collectives called by the program and by callbacks, dense and sparse ones, are numbered
  /// separately; `number` is that of this collective.
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

  /// Moves the operations and tensors of the call into the task. Call it once. If the operations
  /// have not ended, Pending then holds a reference to the task until it is settled. So the tensors
  /// stay alive even if the caller drops the task.
  void adopt(StartedCall begun);
  /// Sets the numbers in the task's name. Call it before adopt().
  void set_numbers(std::uint64_t sequence, std::uint64_t record) noexcept {
    name_.sequence = sequence;
    name_.record = record;
  }
  /// Records that the caller has passed a time limit, which replaces that of the group. Call it
  /// before adopt().
  void set_own_limit() noexcept { has_own_limit_ = true; }
  /// Sets the number of this collective for Origin::callback_of(). Call it before the task is
  /// returned to the user.
  void set_number(std::uint64_t number) noexcept { number_ = number; }
  /// The operations. They never change after adopt().
  const Works& works() const noexcept { return begun_.works; }
  const Works& awaited() const noexcept { return begun_.awaited; }
  const SparseCalls& sparse() const noexcept { return begun_.sparse; }
  const Tensors& outputs() const noexcept { return begun_.outputs; }
  const TaskName& name() const noexcept { return name_; }
  /// Whether the program has made the call, and not a callback.
  bool is_of_program() const noexcept { return origin_.is_program(); }
  /// The origin of calls that the callbacks of the task's futures make. In the order of streams it
  /// is the origin of the task's own call: the futures are complete from the beginning, so at all
  /// ranks a callback runs within the function that adds it.
  Origin origin_of_callbacks() const noexcept;
  /// Null for a call on tensors in CPU memory.
  const OnDevice* device() const noexcept { return begun_.device.get(); }
  /// Whether the task is a collective, which all ranks call in the same order. Valid after adopt().
  bool is_ordered() const noexcept;
  /// Whether a stream of the device has been made to wait for the task.
  bool has_stream_waiters() const noexcept {
    return has_stream_waiters_.load(std::memory_order_relaxed);
  }
  bool is_settled() const noexcept { return settled_.load(std::memory_order_acquire); }
  /// Whether the task's operations, and its copies on a device, have ended. Makes no progress on
  /// them.
  bool ended() const noexcept;
  /// Settles the task if it has ended. Returns whether it is settled.
  bool settle_if_ended() noexcept;
  /// Settles the task, unless it is settled. Requires that the task has ended.
  void settle() noexcept;
  /// Fulfils the task at the first call. Later calls wait until the future of the values is
  /// complete, but not for its callbacks. Requires that the task is settled.
  void complete_futures() noexcept;
  /// Work::wait_for or Work::wait_beside_program.
  using WorkWait = xylem::Status (xylem::Work::*)(std::chrono::nanoseconds) const;
  /// Waits with the function `way` until the task has ended, at most for `limit`.
  void wait_for_end(WorkWait way, std::chrono::nanoseconds limit) noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  Tensors result() override;
  /// Like wait(), but first releases Python's lock.
  void synchronize() override;
  /// Waits until the task has ended, and throws its error if it has failed. Throws if `timeout`
  /// passes first; the task then continues. In the order of streams, and without a time-out, does
  /// not wait: makes the current stream wait, and throws only if the task has failed already.
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
  /// Whether the call is part of a CUDA graph. It may have ended before the graph is launched.
  bool is_captured() const noexcept;
  /// Whether streams should wait for the task instead of threads.
  bool belongs_in_stream_order() const noexcept;
  /// Makes a stream of the task's device wait for the end of the task.
  void block(const DeviceStream& stream) const;
  void make_current_stream_wait();
  /// Releases the tensors that the task holds only for its operations.
  void drop_kept() noexcept;
  /// Enqueues the copies on a stream of the device, unless another thread has begun to do so.
  void enqueue_copies() noexcept;
  /// Calls enqueue_copies() for the task, and for each of its parts, if the operations of the task
  /// or part have ended.
  void enqueue_copies_if_ended() noexcept;
  /// Whether the copies have completed.
  bool have_copies_ended() const noexcept;
  /// If the operations have ended, enqueues the copies on a device and waits until they have
  /// completed.
  void wait_for_copies(Deadline deadline) noexcept;
  /// Why the copies on a device could not be enqueued; null if they were.
  std::exception_ptr copy_error() const noexcept;
  /// A future that is complete from the beginning, with an event for which streams wait.
  FuturePtr future_in_stream_order();
  /// A future that is completed when the task is fulfilled: at once if the task is settled,
  /// otherwise by a server of futures (pending.h).
  FuturePtr future(FuturePtr Futures::*which, c10::TypePtr type);
  void complete(const Futures& futures) const noexcept;

  /// The state of the copies on a device. copies on the CPU are made by settle().
  enum class CopyState : std::uint8_t {
    due,        ///< In `begun_`. The thread that sets `enqueuing` enqueues them.
    enqueuing,  ///< A thread is enqueuing them.
    enqueued,   ///< Enqueued, or enqueuing has failed, or there are none.
  };

  TaskName name_;
  const Origin origin_;
  std::uint64_t number_ = 0;  ///< See set_number().
  const std::shared_ptr<Pending> pending_;
  StartedCall begun_;
  bool has_own_limit_ = false;
  bool is_in_stream_order_ = false;  ///< Whether wait() makes streams wait. Set by adopt().
  std::atomic<bool> settled_{false};
  mutable std::atomic<bool> has_stream_waiters_{false};
  Mutex settling_;
  /// Made on request, before the task is fulfilled.
  Futures futures_ XYLEM_LOCKING(guarded_by(settling_));
  bool has_completed_futures_ XYLEM_LOCKING(guarded_by(settling_)) = false;
  std::list<TaskPtr>::iterator place_;  ///< Position in the list of `pending_`.
  std::atomic<bool> is_listed_{false};
  std::atomic<CopyState> copy_state_{CopyState::enqueued};
  /// See copy_error(). Written before `copy_state_` becomes `enqueued`.
  std::exception_ptr copy_error_;
};

}  // namespace xylem::pytorch
