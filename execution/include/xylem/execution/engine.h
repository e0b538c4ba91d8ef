// SPDX-License-Identifier: Apache-2.0
//
// Engine: the interpreter that runs all programs. It runs them slice by slice, in rounds. A slice
// is issued when the slices on which it depends have completed. Messages of a lane are issued in
// list order, with at most `window` in flight. Each round runs one slice of each copy and reduction
// that is ready, so that messages are handled in between. Without a Compute, the CPU does this work
// at once. A Compute completes it later (device_pieces.h): copies and reductions that use a result
// of pending work are enqueued behind that work without waiting, but messages wait until the work
// has completed.
//
// The code that runs for each step takes no lock, makes no system call and formats no text. It
// allocates only when a list of pending work grows.
//
// No work of a call is enqueued on a device before the gate of the call has opened. All calls share
// the queues of the device, and the gate of a call may open only after an earlier call has ended.
// If work were enqueued behind the closed gate, further work of the earlier call would wait behind
// it in the queue for ever.
//
// Only one thread at a time may call the engine.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/execution/device_pieces.h"
#include "xylem/execution/engine_listener.h"
#include "xylem/execution/exchange.h"
#include "xylem/execution/held_views.h"
#include "xylem/execution/message_pool.h"
#include "xylem/execution/pending_work.h"

#include <cstdint>
#include <vector>

namespace xylem::execution {

class Engine {
 public:
  static constexpr std::uint64_t kNoOutput = ~std::uint64_t{0};

  explicit Engine(EngineListener& listener) : listener_(listener) {}
  /// Sets how try_start() polls for messages that are about to arrive. By default it does not poll.
  void set_poll_budget(PollBudget budget) noexcept { exchanges_.set_poll_budget(budget); }
  /// A new PollBudget with the limits of set_poll_budget(), for other code that polls for messages.
  PollBudget poll_budget() const noexcept { return exchanges_.poll_budget().fresh(); }
  /// Outputs of at least this size are written with non-temporal stores, except when they overwrite
  /// their own input.
  void set_non_temporal_from(std::uint64_t bytes) noexcept { non_temporal_from_ = bytes; }
  /// See HeldViews::set_eviction_delay().
  void set_eviction_delay(Clock::duration delay) noexcept { views_.set_eviction_delay(delay); }

  /// Runs an exchange as far as possible without blocking. Prepare the execution as for start(),
  /// but do not call activate() before this. Returns true if the exchange has ended without an
  /// error: then on_ended() is not called, and the RunState of the execution is reset. Otherwise
  /// continue with activate() and start().
  bool try_start(Execution& execution, const Exchange& exchange) {
    execution.run.non_temporal = is_non_temporal(execution.run);
    return exchanges_.try_start(execution, exchange);
  }
  /// Starts a collective whose `run.program`, `run.base`, `run.factor`, `run.device`, `sequence`
  /// and `fingerprint` are set, and runs it as far as possible without blocking. It may end within
  /// this call. If `run.device.compute` is set, the program must be compiled with Fusion::none or
  /// Fusion::views.
  void start(Execution& execution);
  /// Post one message of a point-to-point call. EngineListener::on_body() reports that it has
  /// completed. If the execution has a Compute, a received message may stay where it arrived:
  /// Message::view then shows it.
  Message& post_send(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::ConstRegion source);
  Message& post_recv(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::Tag mask,
                     transport::Region target);
  /// Enqueues a copy of a point-to-point call on its device (`run.device`) when the gate of the
  /// call has opened. When the copy has completed, possibly within this call, the listener's
  /// on_copied() is called. If the gate has not opened by `limit`, on_late_gate() is called
  /// instead. The execution does not end before one of the two has been called.
  void post_copy(Execution& execution,
                 const OnDevice::Copy& copy,
                 Deadline limit = Deadline::at(Clock::time_point::max()));
  /// Like post_copy(), but enqueues the copy at once, even if the gate is closed.
  void post_copy_before_gate(Execution& execution, const OnDevice::Copy& copy);
  /// Fails an execution: nothing more of it is issued, and its messages and pending work are
  /// cancelled. on_ended() is called when all of these messages and all of this work have ended.
  void fail(Execution& execution, Status why);
  /// Ends an execution at once, and calls on_ended() with `outcome`. Messages of the execution may
  /// still be posted; if they fail later, this is not reported.
  void finish(Execution& execution, Status outcome);
  /// Handles completions, runs the steps that became ready, and runs one round of each execution
  /// that has more to do. Call this after each round of transport progress. Returns the number of
  /// completions that it has handled, plus the number of slices that have completed in the round.
  unsigned run() {
    const bool is_idle =
        !messages_.has_completed() && busy_.empty() && pending_.empty() && views_.empty();
    return is_idle ? 0 : run_round();
  }
  /// Evicts views (HeldViews::evict), since their senders may be waiting for the slots. Call this
  /// before the thread sleeps. True if any view is evicted.
  bool evict_views() { return views_.evict(active_); }

  /// True if work of a Compute is pending, or a gate is closed. No descriptor reports the
  /// completion of the work or the opening of the gate: keep calling run() to detect them.
  bool has_pending_work() const noexcept { return !pending_.empty(); }

  /// True if some messages of a lane of a collective have not been issued. False for an exchange,
  /// which issues all of its messages at once.
  static bool has_more(const Execution& execution, std::uint32_t lane) noexcept;

  /// What has been enqueued on devices since the engine was made.
  const EnqueuedPieces& enqueued_pieces() const noexcept { return devices_.enqueued(); }

  /// The first execution in the list of those that have begun and not ended. Execution::active_next
  /// links the list.
  Execution* active() const noexcept { return active_; }
  /// Adds an execution to the list of active().
  void activate(Execution& execution) noexcept;

 private:
  void deactivate(Execution& execution) noexcept;
  void end_if_idle(Execution& execution);

  // Completions.
  unsigned run_round();
  void on_message(Message& message);
  void on_point_to_point(Message& message);
  void on_slice(Message& message);
  void on_gate(Execution& execution, bool is_open);
  void on_work(const PendingWork::Work& work);
  void report(Execution& execution, std::uint32_t peer, Code code);
  void begin_copy(Execution& execution);

  // Rounds.
  void run_ready(Execution& execution);
  void run_soon(Execution& execution);
  void add_to_round(Execution& execution);
  void advance(Execution& execution, StepId id);
  void pump(Execution& execution, std::uint32_t lane);
  bool issue(Execution& execution, StepId id, std::uint32_t slice);

  /// Decides whether the output is written with non-temporal stores.
  bool is_non_temporal(const Run& run) const noexcept {
    return run.program->bytes_of(collectives::Buffer::output) >= non_temporal_from_ &&
           !is_over_input(run);
  }
  static bool is_over_input(const Run& run) noexcept;

  EngineListener& listener_;
  Execution* active_ = nullptr;
  /// Executions with steps to run or views to fetch, and those of them that this round is handling.
  /// The engine holds a reference to each of them.
  std::vector<Execution*> busy_, round_;
  std::uint64_t non_temporal_from_ = kNoOutput;
  MessagePool messages_;
  PendingWork pending_;
  HeldViews views_{listener_, pending_};
  DevicePieces devices_{listener_, pending_, views_};
  ExchangeRunner exchanges_{listener_, messages_, views_};
};

}  // namespace xylem::execution
