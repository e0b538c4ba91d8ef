// SPDX-License-Identifier: Apache-2.0
//
// Operation: one call under way, from its submission until its last handle is dropped. Operations
// are pooled, so an application that repeats its calls allocates no operations.
//
//   free ──► submitted ──► (deferred) ──► running ──► ended ──► free
//                                            └─► failing ─┘
//
// From the launch of an operation until `ended` is set, only the holder of the progress token
// changes it, except through functions that any thread may call. `ended` is set last, when no
// transport accesses the operation's buffers. After that, the operation does not change until it is
// reused.
#pragma once

#include "calls/calls.h"
#include "calls/gate_waits.h"
#include "calls/plans.h"
#include "calls/stream_waits.h"
#include "failure/situation.h"
#include "process_guard.h"
#include "progress/progress.h"
#include "progress/token.h"
#include "xylem/base/clock.h"
#include "xylem/base/memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/execution.h"
#include "xylem/execution/mesh.h"
#include "xylem/execution/poll_budget.h"
#include "xylem/runtime/types.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::runtime {

using execution::Engine;
using execution::Exchange;
using execution::Execution;
using execution::Link;
using execution::Message;
using execution::PollBudget;
using execution::Program;
using execution::Run;

class Operation;
class OperationPool;

/// Receives what the engine reports about a send or receive (EngineListener). Called by the token
/// holder only.
class MessageListener {
 public:
  virtual void on_body(Message& message) = 0;
  virtual void on_copied(Operation& operation) = 0;
  virtual void on_late_gate(Operation& operation, const execution::OnDevice::Copy& copy) = 0;

 protected:
  ~MessageListener() = default;
};

/// The interface between the scheduler and the communicator to which an operation belongs.
class OperationOwner {
 public:
  /// Starts an operation that is active in the engine. The operation may end within this function,
  /// so the caller must hold a reference to it.
  virtual void launch(Token token, Operation& operation) noexcept = 0;
  /// Called just before the operation ends. No transport uses its buffers any more, except after an
  /// error for which Status::holds_buffers() is true.
  virtual void on_ended(Token token, Operation& operation) = 0;
  /// A message of the operation to or from rank `peer` of the communicator failed. `peer` is kNone
  /// for the message of a send or receive.
  virtual void on_wire_error(Token token, Operation& operation, std::uint32_t peer, Code code) = 0;
  /// The device that computes the operation has failed. Returns the error with which the
  /// communicator fails.
  virtual Status on_compute_error(Token token, Operation& operation, const Status& why) = 0;
  virtual MessageListener& message_listener(Token token) noexcept = 0;

 protected:
  ~OperationOwner() = default;
};

/// What Watch (watch.h) records about an operation.
struct Watched {
  Clock::time_point begun{};  ///< The time of the first tick at which the operation was running.
  /// Execution::advanced at the last tick. If it has not changed at the next tick, the operation
  /// stalls.
  std::uint64_t advanced_at_tick = 0;
  Clock::time_point stalled_since{};
  bool is_oldest = false;  ///< The operation has become the oldest collective of its group.
  bool reported = false;   ///< The other ranks have been informed of the stall.
  RollCallId roll;         ///< The roll call about the time limit.
  RollCallId stall_roll;   ///< The roll call about the stall that is to be logged.
  bool warned = false;     ///< The stall of the operation has been logged.
};

/// The links and flags of an operation in lists of waiting operations.
struct OperationLists {
  /// The next operation in the list of submitted operations, and later in the list of deferred
  /// collectives (admission.h).
  Operation* queue_next = nullptr;
  /// The next operation in a list of receives that wait for a message, or of sends that wait for
  /// room.
  Operation* match_next = nullptr;
  bool is_staging = false;  ///< A send or receive waits for a copy to the host, or for a gate.
  /// True while `match_next` links the operation: a receive that waits for its message, a send to
  /// this rank that waits for its receive, or a send that waits because too many sends to its rank
  /// are under way.
  bool is_queued = false;
};

class Operation final : public Execution {
 public:
  explicit Operation(OperationPool& pool) noexcept : pool_(&pool) {}
  /// Makes an operation that belongs to no job. It has one reference, and is deleted with its last
  /// handle.
  Operation() noexcept { set_references(1); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() = default;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// The flag that ended() reads, for Progress::wait().
  const std::atomic<bool>& end_flag() const noexcept { return ended_; }
  /// How the operation ended. Call this only after ended() has returned true.
  const Status& outcome() const noexcept { return outcome_; }

  /// Ends the operation. The caller must hold a reference: other threads may drop theirs as soon as
  /// the operation has ended. The token holder does not write to the operation after this call.
  void end(Status outcome) noexcept {
    outcome_ = std::move(outcome);
    if (run.device.compute != nullptr) stream_waits_.end();
    ended_.store(true, std::memory_order_release);
  }

  /// The time-out that the user has set for this operation; empty if there is none. Any thread may
  /// call this.
  std::optional<std::chrono::nanoseconds> timeout() const noexcept {
    const auto limit = timeout_.load(std::memory_order_relaxed);
    return limit == kNoTimeout ? std::nullopt : std::optional(std::chrono::nanoseconds(limit));
  }
  void set_timeout(std::chrono::nanoseconds limit) noexcept {
    timeout_.store(std::max(limit, std::chrono::nanoseconds(0)).count(), std::memory_order_relaxed);
  }

  /// Opens `gate`, which belongs to the device of this operation, when the operation ends. Any
  /// thread that holds a reference may call this.
  void open_at_end(execution::Ticket gate) { stream_waits_.add(*run.device.compute, gate); }

  /// The Progress and the ProcessGuard of the operation's job. Precondition: the operation belongs
  /// to a job.
  Progress& progress() const noexcept;
  const ProcessGuard& process() const noexcept;

  // The thread that makes the call writes these members and `run.device` before the launch.
  Call call;
  std::shared_ptr<Plan> plan;             ///< The plan; set for collectives only.
  Status unplanned;                       ///< Why a collective has no plan.
  std::shared_ptr<OperationOwner> owner;  ///< Keeps the communicator alive, and so the job.
  /// Fails if devices of the mesh have found that the ranks disagree about the call.
  Status check_mesh() const;

  /// For a call on a mesh: the mesh, and how the call was enqueued.
  std::shared_ptr<execution::Mesh> mesh;
  execution::Enqueued enqueued;

  // After the launch, only the token holder writes these members and all inherited members except
  // the reference count.
  std::uint32_t source = 0;  ///< World rank of the sender that a receive has matched.
  /// Number of elements of the message that a receive has matched; at most `call.count`.
  std::uint64_t received = 0;
  /// True if only the operation has failed, and its group continues.
  bool fails_alone = false;
  /// For a receive into device memory: decides whether its message waits for the gate of the
  /// receive. Null for other operations, and when the decision is no longer needed. The group owns
  /// it.
  GateWaits* gate_waits = nullptr;
  OperationLists lists;
  Watched watched;

 private:
  friend class OperationPool;
  void begin(std::shared_ptr<OperationOwner> owner_of_this) noexcept;
  /// Called when the last reference is dropped. Returns the operation to its pool, or deletes it if
  /// it has no pool.
  void unreferenced() noexcept override;
  void reset() noexcept;

  static constexpr std::chrono::nanoseconds::rep kNoTimeout = -1;

  OperationPool* pool_ = nullptr;
  std::atomic<std::chrono::nanoseconds::rep> timeout_{kNoTimeout};
  std::atomic<bool> ended_{false};
  Status outcome_;
  StreamWaits stream_waits_;  ///< Used only if a device computes the operation.
  Operation* free_next_ = nullptr;
};

// All executions of a job's engine are operations.
inline Operation* as_operation(Execution* execution) noexcept {
  return static_cast<Operation*>(execution);
}
inline Operation& operation_of(const Message& message) noexcept {
  return static_cast<Operation&>(*message.owner);
}

/// The operations of one job. Thread-safe.
class OperationPool {
 public:
  OperationPool(Progress& progress, const ProcessGuard& process)
      : progress_(progress), process_(process) {}

  /// An operation for a call, with two references. One belongs to the engine and is released when
  /// the operation ends; the other is for a Work.
  Operation& take(std::shared_ptr<OperationOwner> owner);
  /// The spare operation, which has no owner and no references. A call that may complete at once
  /// starts on it. Returns the same operation until keep_spare() is called.
  Operation& spare(Token token);
  /// Turns the spare operation into an operation like those of take(), and returns it. Call this if
  /// the call on the spare operation has not completed at once.
  Operation& keep_spare(Token token, std::shared_ptr<OperationOwner> owner) noexcept;

 private:
  friend class Operation;
  Operation& take_free();
  void give_back(Operation& operation) noexcept;

  Progress& progress_;
  const ProcessGuard& process_;
  /// A free operation, which take_free() takes without locking the mutex. One is enough for an
  /// application that waits for each call.
  std::atomic<Operation*> last_free_{nullptr};
  Operation* spare_ = nullptr;  ///< For the token holder only.
  Mutex mutex_;
  Operation* free_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;
  std::vector<std::unique_ptr<Operation>> all_ XYLEM_LOCKING(guarded_by(mutex_));
};

inline Progress& Operation::progress() const noexcept { return pool_->progress_; }
inline const ProcessGuard& Operation::process() const noexcept { return pool_->process_; }

}  // namespace xylem::runtime
