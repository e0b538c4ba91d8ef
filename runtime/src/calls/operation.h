// SPDX-License-Identifier: Apache-2.0
//
// Operation: one call under way, from its submission until its last handle is dropped. Operations
// are pooled, so a program that repeats its calls allocates none.
//
//   free ──► submitted ──► (deferred) ──► running ──► ended ──► free
//                                            └─► failing ─┘
//
// Until `ended` is set, everything except the call itself belongs to the holder of the progress
// token. `ended` is set last, when no transport touches the operation's buffers any more; nothing
// changes after that.
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

/// What the engine reports of a send or receive (EngineListener). For the token holder only.
class MessageListener {
 public:
  virtual void on_body(Message& message) = 0;
  virtual void on_copied(Operation& operation) = 0;
  virtual void on_late_gate(Operation& operation, const execution::OnDevice::Copy& copy) = 0;

 protected:
  ~MessageListener() = default;
};

/// The communicator to which an operation belongs, as the scheduler knows it.
class OperationOwner {
 public:
  /// Starts an operation that is active in the engine. The caller holds a reference to it, since it
  /// may end within this call.
  virtual void launch(Token token, Operation& operation) noexcept = 0;
  /// The operation ends when this returns. No transport uses its buffers any more.
  virtual void on_ended(Token token, Operation& operation) = 0;
  /// A message of the operation to or from rank `peer` of the communicator failed. `peer` is kNone
  /// for the message of a send or receive.
  virtual void on_wire_error(Token token, Operation& operation, std::uint32_t peer, Code code) = 0;
  /// The device that computes the operation had a fault.
  virtual void on_compute_error(Token token, Operation& operation, const Status& why) = 0;
  virtual MessageListener& message_listener(Token token) noexcept = 0;

 protected:
  ~OperationOwner() = default;
};

/// What the watch remembers of an operation.
struct Watched {
  Clock::time_point begun{};  ///< The time of the first tick at which the operation was running.
  /// Execution::advanced at the last tick. The operation stalls if it has not changed since.
  std::uint64_t advanced_at_tick = 0;
  Clock::time_point stalled_since{};
  bool is_oldest = false;  ///< At the last tick this was the oldest collective of its group.
  bool reported = false;   ///< The stall of the operation has been published.
  RollCallId roll;         ///< The roll call that asked the other ranks which calls they are in.
  bool warned = false;     ///< The stall of the operation has been logged.
};

/// The lists of waiting operations in which an operation may be.
struct OperationLists {
  /// Links the submission queue, and then the list of deferred collectives (admission.h).
  Operation* queue_next = nullptr;
  /// Links receives that wait for a message, or sends that wait for room.
  Operation* match_next = nullptr;
  bool is_staging = false;  ///< The bytes of a message are still being copied to the host.
  /// True for a point-to-point operation in a list of operations that wait for a partner or for
  /// room.
  bool is_unmatched = false;
};

class Operation final : public Execution {
 public:
  explicit Operation(OperationPool& pool) noexcept : pool_(&pool) {}
  /// Makes an operation that belongs to no job, with one reference. Only its handles own it.
  Operation() noexcept { set_references(1); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() = default;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// The flag that ended() reads, for Progress::wait().
  const std::atomic<bool>& end_flag() const noexcept { return ended_; }
  /// How the operation ended. Call this only after ended() has returned true.
  const Status& outcome() const noexcept { return outcome_; }

  /// Ends the operation. This is the token holder's last write to it, so the caller must hold a
  /// reference.
  void end(Status outcome) noexcept {
    outcome_ = std::move(outcome);
    if (run.device.compute != nullptr) stream_waits_.end();
    ended_.store(true, std::memory_order_release);
  }

  /// The operation's own time-out, if one was set. Any thread may call this.
  std::optional<std::chrono::nanoseconds> timeout() const noexcept {
    const auto limit = timeout_.load(std::memory_order_relaxed);
    return limit == kNoTimeout ? std::nullopt : std::optional(std::chrono::nanoseconds(limit));
  }
  void set_timeout(std::chrono::nanoseconds limit) noexcept {
    timeout_.store(std::max(limit, std::chrono::nanoseconds(0)).count(), std::memory_order_relaxed);
  }

  /// Opens a gate of the device of this operation when the operation ends. Any thread with a
  /// reference may call this.
  void open_at_end(execution::Ticket gate) { stream_waits_.add(*run.device.compute, gate); }

  /// The progress object and the process guard of the job of this operation. Call them only for an
  /// operation of a job.
  Progress& progress() const noexcept;
  const ProcessGuard& process() const noexcept;

  // The submitter writes these members and `run.device`.
  Call call;
  std::shared_ptr<Plan> plan;             ///< The plan; set for collectives only.
  Status unplanned;                       ///< Why a collective has no plan.
  std::shared_ptr<OperationOwner> owner;  ///< Keeps the communicator alive, and so the job.
  /// For a call on a mesh: the mesh, and how the call was enqueued.
  std::shared_ptr<execution::Mesh> mesh;
  execution::Enqueued enqueued;

  // The token holder owns these members, and all inherited members except the reference count.
  std::uint32_t source = 0;  ///< World rank of the sender that a receive has matched.
  /// Number of elements of the message that a receive has matched; at most `call.count`.
  std::uint64_t received = 0;
  /// True if the operation has failed, and its group has not.
  bool fails_alone = false;
  /// Decides whether the message waits for the stream of this receive. Set while the message of a
  /// receive into device memory may still have to decide this, otherwise null. The group owns it.
  GateWaits* gate_waits = nullptr;
  OperationLists lists;
  Watched watched;

 private:
  friend class OperationPool;
  void begin(std::shared_ptr<OperationOwner> owner_of_this) noexcept;
  /// Returns the operation to its pool, or deletes it if it has none.
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

  /// An operation for a call, with two references: one belongs to the engine, which releases it
  /// when the operation ends, and the other is for a Work.
  Operation& take(std::shared_ptr<OperationOwner> owner);
  /// The spare operation, which has no owner and no references. A call that may end at once starts
  /// on it. Returns the same operation each time, until keep_spare() is called.
  Operation& spare(Token token);
  /// Call this if the call on the spare operation has not ended. Turns it into an operation like
  /// those of take(), and returns it.
  Operation& keep_spare(Token token, std::shared_ptr<OperationOwner> owner) noexcept;

 private:
  friend class Operation;
  Operation& take_free();
  void give_back(Operation& operation) noexcept;

  Progress& progress_;
  const ProcessGuard& process_;
  /// A free operation, which is taken without the mutex. One is enough for programs that wait for
  /// each call.
  std::atomic<Operation*> last_free_{nullptr};
  Operation* spare_ = nullptr;  ///< For the token holder only.
  Mutex mutex_;
  Operation* free_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;
  std::vector<std::unique_ptr<Operation>> all_ XYLEM_LOCKING(guarded_by(mutex_));
};

inline Progress& Operation::progress() const noexcept { return pool_->progress_; }
inline const ProcessGuard& Operation::process() const noexcept { return pool_->process_; }

}  // namespace xylem::runtime
