// SPDX-License-Identifier: Apache-2.0
//
// Operation: one call under way, from submission until its last handle is dropped. Operations are
// pooled: a steady program allocates none.
//
//   free ──► submitted ──► (deferred) ──► running ──► ended ──► free
//                                            └─► failing ─┘
//
// Until `ended` is set, everything but the call itself belongs to the holder of the progress token.
// `ended` is set last, when no transport touches the operation's buffers any more; after that
// nothing changes.
#pragma once

#include "calls.h"
#include "plans.h"
#include "process_guard.h"
#include "progress.h"
#include "situation.h"
#include "xylem/base/clock.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/execution.h"
#include "xylem/execution/patience.h"
#include "xylem/runtime/types.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::runtime {

using execution::Engine;
using execution::Exchange;
using execution::Execution;
using execution::Link;
using execution::Message;
using execution::Patience;
using execution::Program;
using execution::Run;

class Group;
class Operation;
class OperationPool;

/// What the watch knows of an operation.
struct Watched {
  Clock::time_point begun{};           ///< First tick that saw it running.
  std::uint64_t advanced_at_tick = 0;  ///< Execution::advanced: without a change since, it stalls.
  Clock::time_point stalled_since{};
  bool is_oldest = false;  ///< Of its group's collectives, at the last tick.
  bool reported = false;   ///< Its stall has been published.
  RollCallId roll;         ///< By which the others were asked where they are.
  bool warned = false;     ///< Its stall has been logged.
};

/// The lists of waiting operations that one may be in.
struct OperationLists {
  Operation* queue_next = nullptr;  ///< Submission queue, then the group's deferred list.
  Operation* match_next = nullptr;  ///< Receives waiting for a message, sends waiting for room.
  bool is_staging = false;          ///< A send whose bytes are still being copied to the host.
  bool is_unmatched = false;        ///< Point to point: in a list of those that wait for a partner.
};

class Operation final : public Execution {
 public:
  explicit Operation(OperationPool& pool) noexcept : pool_(&pool) {}
  /// Of no job, with one reference: its handles alone own it.
  Operation() noexcept { set_references(1); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() = default;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// The same, for Progress::wait().
  const std::atomic<bool>& end_flag() const noexcept { return ended_; }
  /// Only once ended.
  const Status& outcome() const noexcept { return outcome_; }

  /// Ends it: the last write to the operation by the token holder. The caller still holds a
  /// reference.
  void end(Status outcome) noexcept {
    outcome_ = std::move(outcome);
    ended_.store(true, std::memory_order_release);
  }

  /// Of its own, where one was set; any thread.
  std::optional<std::chrono::nanoseconds> timeout() const noexcept {
    const auto limit = timeout_.load(std::memory_order_relaxed);
    return limit == kNoTimeout ? std::nullopt : std::optional(std::chrono::nanoseconds(limit));
  }
  void set_timeout(std::chrono::nanoseconds limit) noexcept {
    timeout_.store(std::max(limit, std::chrono::nanoseconds(0)).count(), std::memory_order_relaxed);
  }

  /// Those of its job. Only for an operation of a job.
  Progress& progress() const noexcept;
  const ProcessGuard& process() const noexcept;

  // Written by the submitter, as is `run.device`.
  Call call;
  std::shared_ptr<Plan> plan;    ///< Of a collective.
  Status unplanned;              ///< Why there is none.
  std::shared_ptr<Group> group;  ///< Keeps the group, and so the job.

  // Of the token holder, as is all that it inherits but the count of references.
  std::uint32_t source = 0;  ///< World rank a receive matched.
  OperationLists lists;
  Watched watched;

 private:
  friend class OperationPool;
  void begin(std::shared_ptr<Group> for_group) noexcept;
  /// Returns it to its pool, or ends it if it has none.
  void unreferenced() noexcept override;
  void reset() noexcept;

  static constexpr std::chrono::nanoseconds::rep kNoTimeout = -1;

  OperationPool* pool_ = nullptr;
  std::atomic<std::chrono::nanoseconds::rep> timeout_{kNoTimeout};
  std::atomic<bool> ended_{false};
  Status outcome_;
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

  /// An operation for a call of this group, with two references: the engine's, which its end gives
  /// back, and one for a Work.
  Operation& take(std::shared_ptr<Group> group);
  /// An operation without a group or references, on which the token holder begins a call that may
  /// be over at once; always the same one, until it is kept.
  Operation& at_hand();
  /// The call on the operation at hand is not over: makes it one as take() gives.
  void keep_at_hand(std::shared_ptr<Group> group) noexcept;

 private:
  friend class Operation;
  Operation& take_free();
  void give_back(Operation& operation) noexcept;

  Progress& progress_;
  const ProcessGuard& process_;
  std::atomic<Operation*> spare_{nullptr};  ///< One that is free, for programs that wait each time.
  Operation* at_hand_ = nullptr;            ///< Of the token holder.
  std::mutex mutex_;
  Operation* free_ = nullptr;
  std::vector<std::unique_ptr<Operation>> all_;
};

inline Progress& Operation::progress() const noexcept { return pool_->progress_; }
inline const ProcessGuard& Operation::process() const noexcept { return pool_->process_; }

}  // namespace xylem::runtime
