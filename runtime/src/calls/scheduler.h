// SPDX-License-Identifier: Apache-2.0
//
// Scheduler: passes the operations of a job to the engine, and their results to their
// communicators. A thread that starts an operation launches it if the progress token is free.
// Otherwise the thread submits the operation, and the token holder launches it in its next turn.
//
//   start() ──token is free──────────────────────► owner.launch() ──► engine ──► owner.on_ended()
//      └──► submit() ──► list ──► turn() of the holder ──┘
#pragma once

#include "calls/operation.h"
#include "groups/header_pool.h"
#include "progress/progress.h"
#include "progress/progress_thread.h"
#include "progress/token.h"
#include "progress/work_source.h"
#include "xylem/execution/engine.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace xylem::runtime {

class Scheduler final : public WorkSource, private execution::EngineListener {
 public:
  Scheduler(Progress& progress, ProgressThread& thread, TokenGuarded<HeaderPool>& headers)
      : progress_(progress), thread_(thread), headers_(headers) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() override = default;

  // Any thread may call these functions:
  /// Launches the operation if the token is free; otherwise submits it.
  void start(Operation& operation);
  /// Adds the operation to a list, from which the token holder launches it. The caller does not
  /// hold the token.
  void submit(Operation& operation) noexcept;
  /// How many operations have been launched and have not ended.
  std::uint32_t pending() const noexcept { return pending_.load(std::memory_order_acquire); }

  Engine& engine(Token /*token*/) noexcept { return engine_; }
  void launch(Token token, Operation& operation) noexcept;
  /// Launches all operations that have been submitted.
  void launch_submitted(Token token) noexcept;
  /// Counts an operation as launched, and activates it in the engine.
  void activate(Token token, Operation& operation) noexcept;

  unsigned turn(Token token) override;
  Need need() const noexcept override;
  bool arm(Token token, std::vector<pollfd>& descriptors) override;
  bool needs_polling(Token /*token*/) const noexcept override { return engine_.has_pending_work(); }

  /// Exists while a thread makes a call. Acquires the progress token if it is free, and releases it
  /// in the destructor. Before the release, it runs a round of the engine if work may be left.
  class CallScope {
   public:
    explicit CallScope(Scheduler& scheduler)
        : scheduler_(scheduler), has_token_(scheduler.progress_.try_acquire()) {
      if (has_token_ && !scheduler.is_quiet(token())) catch_up();
    }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;
    ~CallScope() {
      if (!has_token_) return;
      if (is_complete_ && was_quiet_) {
        scheduler_.progress_.release_unchanged();
      } else {
        finish();
      }
    }

    bool has_token() const noexcept { return has_token_; }
    Token token() const noexcept { return scheduler_.progress_.assert_held(); }
    /// Call this if everything that the call has started is complete, so that the call needs no
    /// round of the engine. The threads that wait for other executions run rounds for these.
    void note_complete() noexcept { is_complete_ = true; }

   private:
    void catch_up() noexcept;
    void finish();

    Scheduler& scheduler_;
    const bool has_token_;
    bool was_quiet_ = true;
    bool is_complete_ = false;
  };

 private:
  /// True if there is no submitted operation to launch and no completed header to handle.
  bool is_quiet(Token token) const noexcept {
    return submitted_.load(std::memory_order_relaxed) == nullptr &&
           !headers_.get(token).has_completed();
  }
  Operation* take_submitted() noexcept;
  /// Handles the headers that the transports have completed, then runs a round of the engine.
  unsigned run(Token token);
  void set_pending(std::uint32_t count) noexcept {
    pending_.store(count, std::memory_order_release);
  }

  MessageListener& listener_of(Operation& operation) const noexcept {
    return operation.owner->message_listener(progress_.assert_held());
  }

  void on_ended(Execution& execution, Status outcome) override;
  void on_wire_error(Execution& execution, std::uint32_t peer, Code code) override;
  void on_compute_error(Execution& execution, const Status& why) override;
  void on_body(Message& message) override;
  void on_copied(Execution& execution) override;
  void on_late_gate(Execution& execution, const execution::OnDevice::Copy& copy) override;

  Progress& progress_;
  ProgressThread& thread_;
  TokenGuarded<HeaderPool>& headers_;
  Engine engine_{*this};
  std::atomic<std::uint32_t> pending_{0};       ///< Only the token holder changes it.
  std::atomic<Operation*> submitted_{nullptr};  ///< A list, newest first.
  /// True while launch_submitted() launches operations that are no longer in `submitted_`, and may
  /// not be counted in `pending_` yet.
  std::atomic<bool> is_launching_{false};
};

}  // namespace xylem::runtime
