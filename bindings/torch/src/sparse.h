// SPDX-License-Identifier: Apache-2.0
//
// all_reduce of sparse tensors. The ranks exchange the numbers of their entries, then gather all
// entries and add them. The second step depends on the result of the first. So a separate thread
// executes the calls, one after the other, on a communicator that is used for nothing else. The
// first call makes this communicator and starts the thread.
#pragma once

#include "jobs.h"
#include "pending.h"
#include "tensors.h"
#include "xylem/base/mutex.h"
#include "xylem/xylem.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xylem::pytorch {

class SparseReducer;

/// One call, executed by the reducer's thread.
class SparseTask final : public c10d::Work {
 public:
  struct Call {
    at::Tensor tensor;
    bool is_average = false;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
    bool has_own_limit = false;  ///< Whether `timeout` is not that of the group.
    std::uint64_t record = 0;    ///< Id for the recorder.
    // Set by the reducer:
    std::uint64_t number = 0;  ///< Number of the call in its reducer, from 1.
    std::uint64_t group = 0;   ///< Pending::id().
    std::uint64_t label = 0;   ///< Label of its operations (Communicator::labelled()).
  };
  /// `reducer` executes the call.
  SparseTask(int rank, Call call, const SparseReducer& reducer);

  /// Executes the call and blocks until it has ended. Reports a failure to `pending`. If
  /// `group_state` is a failure, the call fails with it.
  void carry_out(const Communicator& group, const Status& group_state, Pending& pending) noexcept;
  /// Marks the task as completed, which wakes the threads that wait for it.
  void end() noexcept { finish(error_); }
  /// Completes the future, which runs its callbacks. Call after end().
  void complete_future() noexcept;

  /// Throws if a callback on the reducer's thread calls it for a task that has not ended: the
  /// thread would wait for itself.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  Tensors result() override { return {call_.tensor}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  /// The origin of calls that the callbacks of this task's future make.
  Origin origin_of_callbacks() const noexcept {
    return Origin::callback_of(origin_, /*is_sparse=*/true, call_.number, call_.group);
  }
  std::uint64_t getSequencenumber() const override { return call_.sequence; }

 private:
  Call call_;
  const SparseReducer* const reducer_;  ///< Only compared, never dereferenced.
  const Origin origin_ = Pending::origin();
  std::exception_ptr error_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Throws unless the tensor is sparse and in CPU memory, and `op` is sum or avg.
void check_sparse(const at::Tensor& tensor, const ReduceOp& op);

class SparseReducer : public std::enable_shared_from_this<SparseReducer> {
 public:
  /// `parent` is the communicator of the process group's collectives, and `pending` belongs to the
  /// same process group. The reducer makes a communicator of its own, with the ranks of `parent`.
  SparseReducer(const std::shared_ptr<SharedJob>& job,
                Communicator parent,
                std::shared_ptr<Pending> pending)
      : job_(job), parent_(std::move(parent)), pending_(std::move(pending)) {}
  SparseReducer(const SparseReducer&) = delete;
  SparseReducer& operator=(const SparseReducer&) = delete;
  ~SparseReducer() = default;

  /// Begins to sum or average the call's tensor over all ranks, in place. The tensor must have
  /// passed check_sparse(). Calls are executed in order.
  c10::intrusive_ptr<c10d::Work> reduce(SparseTask::Call call);
  /// The calls that reduce() has begun so far, for a caller that waits for these calls. Empty on
  /// the reducer's own thread, which would wait for itself.
  SparseCalls calls_so_far() const noexcept;
  /// Ends calls in progress, on all ranks; later calls fail.
  void abort() noexcept;
  /// Waits up to 5 seconds for calls in progress, and then aborts the calls that have not ended.
  /// Later calls fail.
  void close() noexcept;
  /// Ends the reducer's thread after the callbacks that the thread is running. Call after close(),
  /// and without Python's lock.
  void stop() noexcept;

 private:
  friend class SparseTask;
  friend struct SparseCalls;
  /// How the ranks agree on the reducer's communicator: each rank announces a seat that it has
  /// taken, and the first rank a random number that identifies the communicator.
  struct SeatExchange {
    struct Rank {
      std::uint64_t seat = 0, number = 0;
    };
    Seat seat;
    Rank mine;
    std::vector<Rank> all;
    xylem::Work gathered;
  };

  void run();
  /// Waits for the next task and returns it; null once the reducer is closed and has no task.
  /// Copies `state_` to `state`.
  c10::intrusive_ptr<SparseTask> take(Status& state);
  /// Starts the exchange of a SeatExchange: an all_gather in the order of the calls on `parent_`.
  void begin_seat_exchange(std::chrono::milliseconds timeout);
  /// Forms the reducer's communicator as `group`, if `group` is empty. Returns the failure if this
  /// fails.
  Status form(Communicator& group);

  /// The reducer whose thread this thread is; null on all other threads.
  static thread_local const SparseReducer* of_this_thread;

  const std::weak_ptr<SharedJob> job_;
  const Communicator parent_;
  const std::shared_ptr<Pending> pending_;
  mutable Mutex mutex_;
  mutable Condition changed_;
  std::deque<c10::intrusive_ptr<SparseTask>> tasks_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Set by the first call, before `thread_` exists.
  std::unique_ptr<SeatExchange> seat_exchange_;
  Communicator group_ XYLEM_LOCKING(guarded_by(mutex_));  ///< Empty until form() succeeds.
  std::thread thread_ XYLEM_LOCKING(guarded_by(mutex_));
  std::uint64_t called_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;  ///< Number of calls of reduce().
  std::atomic<std::uint64_t> ended_ = 0;  ///< Number of these calls that have ended.
  bool is_busy_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  bool is_closed_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  bool is_aborted_ XYLEM_LOCKING(guarded_by(mutex_)) = false;
  /// A failure if the reducer was closed before all its calls had ended.
  Status state_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::pytorch
