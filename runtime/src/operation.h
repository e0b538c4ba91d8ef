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

#include "program.h"
#include "situation.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/runtime/types.h"
#include "xylem/runtime/work.h"
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

class Group;
class OperationPool;

enum class CallKind : std::uint8_t { collective, send, recv };

/// What the user asked for; checked.
struct Call {
  CallKind kind = CallKind::collective;
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op{};
  std::uint32_t root = 0;   ///< Root of a collective.
  std::uint64_t count = 0;  ///< As collectives::Counts; point to point: elements.
  bool uneven = false;
  std::vector<std::uint64_t> input_counts, output_counts;  ///< Uneven calls only.
  const void* input = nullptr;
  void* output = nullptr;
  std::uint32_t peer = collectives::kNone;  ///< Point to point; kNone receives from any.
  std::uint32_t tag = 0;
  /// Memory of our own that the call uses, where it does: it lives as long as the operation, which
  /// outlives the call's Work if a transport does not let go of it.
  std::shared_ptr<const void> owned;
};

/// Memory of the engine's own, aligned to cache lines; grows, and is kept for the next operation.
class ScratchBuffer {
 public:
  /// At least `bytes`; null only if bytes is 0 or memory is short.
  std::byte* reserve(std::uint64_t bytes) noexcept;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint64_t capacity_ = 0;
};

class Engine;
class Operation;

/// One message of an operation, posted to a transport.
struct Message : transport::Operation {
  Engine* engine = nullptr;
  runtime::Operation* owner = nullptr;
  transport::Transport* transport = nullptr;
  transport::EndpointId endpoint = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  bool incoming = false;
  bool in_place = false;        ///< A receive that shows its message.
  Message* previous = nullptr;  ///< In the owner's list.
  Message* next = nullptr;
  Message* completed_next = nullptr;  ///< In the engine's list of completions.
};

/// How far each step has come.
struct StepState {
  std::uint32_t issued = 0;
  std::uint32_t completed = 0;  ///< Slices [0, completed) are done.
  std::uint64_t ahead = 0;      ///< Bit i: slice completed + i is done too.
  bool queued = false;          ///< In Execution::ready or later.
};

struct LaneState {
  std::uint32_t head = 0;  ///< Next step of the lane that issues.
  std::uint32_t in_flight = 0;
};

/// A slice that is looked at where it arrived.
struct HeldView {
  transport::Transport* transport = nullptr;  ///< Null: the slice is in its own place.
  transport::View view;
  StepId step = 0;
  std::uint32_t slice = 0;
};

/// How far a running call is. Replaced as a whole between two lives of an execution.
struct ExecutionState {
  const Program* program = nullptr;
  std::shared_ptr<const Program> kept;  ///< The same, of an operation: its group may forget it.
  std::byte* base[3] = {};              ///< By collectives::Buffer. `input` is only read.
  std::uint32_t steps_left = 1;         ///< Point to point: 1 until the message is through.
  std::uint32_t views_held = 0;
  std::uint32_t under_way = 0;  ///< Of an exchange: messages, and one while they are posted.
  std::uint32_t sent = 0;       ///< Of an exchange: sends that ended within the call.
  bool is_lost = false;         ///< What it has read is not what was sent: nothing goes on.
  bool past_cache = false;      ///< The output is larger than what caches keep.
};

/// State of a running call, collective or message.
struct Execution : ExecutionState {
  // Lists, empty between two lives. Their memory serves the next one, too.
  std::vector<StepState> steps;
  std::vector<LaneState> lanes;
  std::vector<StepId> ready;         ///< To be looked at, last first.
  std::vector<StepId> later;         ///< In the next round: there is more of them.
  std::vector<HeldView> views;       ///< By Place::view.
  std::vector<HeldView> arrived;     ///< Of an exchange.
  std::vector<const void*> sources;  ///< Of the reduce step being run.
  // Only room: what they hold means nothing to the next call.
  ScratchBuffer scratch, staged;

  /// As new, but for the memory that it keeps.
  void renew() noexcept {
    static_cast<ExecutionState&>(*this) = ExecutionState{};
    steps.clear();
    lanes.clear();
    ready.clear();
    later.clear();
    views.clear();
    arrived.clear();
    sources.clear();
  }
};

/// What the holder of the progress token knows of an operation. Replaced as a whole between two
/// lives.
struct OperationState {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
  std::uint32_t outstanding = 0;  ///< Messages posted and not completed.
  Message* messages = nullptr;
  Status health;  ///< Not OK once it fails; reported when `outstanding` is 0.
  Clock::time_point failed_at{};
  Clock::time_point begun{};   ///< First tick that saw it running.
  std::uint64_t advanced = 0;  ///< Completions so far: a tick that finds no change since the last
                               ///< one finds a stall.
  std::uint64_t advanced_at_tick = 0;
  Clock::time_point stalled_since{};
  bool is_oldest = false;           ///< Of its group's collectives, at the last tick.
  bool reported = false;            ///< Its stall has been published.
  RollCallId roll;                  ///< By which the others were asked where they are.
  bool warned = false;              ///< Its stall has been logged.
  std::uint32_t source = 0;         ///< World rank a receive matched.
  Operation* queue_next = nullptr;  ///< Submission queue, then the group's deferred list.
  bool is_busy = false;             ///< Among the engine's operations with more to do.
  Operation* active_previous = nullptr;
  Operation* active_next = nullptr;
  Operation* match_next = nullptr;  ///< Receives waiting for a message, sends waiting for room.
  bool is_unmatched = false;        ///< Point to point: in a list of those that wait for a partner.
};

class Operation : public OperationState {
 public:
  explicit Operation(OperationPool& pool) noexcept : pool_(&pool) {}
  /// Of no job: its handles alone own it.
  Operation() noexcept = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() = default;

  /// A Work of no job, that has ended with this error.
  static Work refused(Status why);
  /// A Work that has ended well without an operation.
  static Work over(std::uint32_t source) noexcept { return Work(source); }

  /// A handle for the user.
  Work handle() noexcept {
    acquire();
    return Work(this);
  }
  void acquire() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// Drops a reference; the last one returns the operation to its pool, or ends it if it has none.
  void release() noexcept;

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
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

  // Written by the submitter.
  Call call;
  std::shared_ptr<Group> group;

  // Of the token holder, as is OperationState.
  Execution run;

 private:
  friend class OperationPool;
  void reset() noexcept;

  static constexpr std::chrono::nanoseconds::rep kNoTimeout = -1;

  OperationPool* pool_ = nullptr;
  std::atomic<std::uint32_t> references_{0};
  std::atomic<std::chrono::nanoseconds::rep> timeout_{kNoTimeout};
  std::atomic<bool> ended_{false};
  Status outcome_;
  Operation* free_next_ = nullptr;
};

/// The operations of one job. Thread-safe.
class OperationPool {
 public:
  /// A fresh operation with one reference.
  Operation& take(std::shared_ptr<Group> group);

 private:
  friend class Operation;
  void give_back(Operation& operation) noexcept;

  std::atomic<Operation*> spare_{nullptr};  ///< One that is free, for programs that wait each time.
  std::mutex mutex_;
  Operation* free_ = nullptr;
  std::vector<std::unique_ptr<Operation>> all_;
};

}  // namespace xylem::runtime
