// SPDX-License-Identifier: Apache-2.0
//
// Engine: the interpreter that runs all programs. It runs them slice by slice, in rounds. A slice
// is issued when the slices for which it waits have completed. Messages of a lane are issued in
// list order, with at most `window` in flight. Copies and reductions are enqueued on the
// execution's Compute, one slice of each step in a round, so that messages are handled in between.
// On the CPU they are done at once. On a device they are pending for a while (device_pieces.h):
// copies and reductions that use their results are enqueued behind them without waiting, but
// messages wait until they have completed.
// Nothing on the path of a step takes a lock, makes a system call or formats text. Nothing there
// allocates, except lists of pending work when they grow.
//
// Nothing of a call is enqueued before its gate is open. The calls share the queues of a device,
// and a gate may open only when an earlier call has ended. If work behind the gate were in the
// queues already, the rest of the earlier call would wait behind it for ever.
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
  /// How try_start() polls for messages that are about to arrive. By default it does not poll.
  void set_poll_budget(PollBudget budget) noexcept { exchanges_.set_poll_budget(budget); }
  /// A PollBudget of the same kind, for callers that poll for messages of their own.
  PollBudget poll_budget() const noexcept { return exchanges_.poll_budget().fresh(); }
  /// Outputs of at least this size are written with non-temporal stores, except when they overwrite
  /// their own input.
  void set_non_temporal_from(std::uint64_t bytes) noexcept { non_temporal_from_ = bytes; }
  /// HeldViews::set_eviction_delay().
  void set_eviction_delay(Clock::duration delay) noexcept { views_.set_eviction_delay(delay); }

  /// Runs an exchange as far as possible without waiting. The execution is prepared as for start(),
  /// and not active yet (activate()). True if the exchange has ended without an error: then
  /// on_ended() is not called, and the RunState of the execution is reset. Otherwise continue with
  /// activate() and start().
  bool try_start(Execution& execution, const Exchange& exchange) {
    execution.run.non_temporal = is_non_temporal(execution.run);
    return exchanges_.try_start(execution, exchange);
  }
  /// Starts a collective whose `run.program`, `run.base`, `run.factor`, `run.device`, `sequence`
  /// and `fingerprint` are set, and runs it as far as possible without waiting. It may end within
  /// this call. If its Compute has queues, the program must be compiled with Fusion::none or
  /// Fusion::views.
  void start(Execution& execution);
  /// Posts one message for a point-to-point call; on_body() reports its completion. If the call is
  /// on a device, a received message may stay where it arrived (Message::view).
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
  /// call has opened. on_copied() follows, possibly within this call. If the gate does not open
  /// before `limit`, on_late_gate() follows instead. The execution does not end before one of the
  /// two has been called.
  void post_copy(Execution& execution,
                 const OnDevice::Copy& copy,
                 Deadline limit = Deadline::at(Clock::time_point::max()));
  /// The same, but the gate need not be open.
  void post_copy_before_gate(Execution& execution, const OnDevice::Copy& copy);
  /// Fails an execution: nothing more is issued, and its messages and pending work are cancelled.
  /// on_ended() follows when the last message and the last pending work have ended.
  void fail(Execution& execution, Status why);
  /// Ends an execution. Nothing is reported about those of its messages that are still posted.
  void finish(Execution& execution, Status outcome);
  /// Runs all steps that completions have made ready, and one round of each execution that has more
  /// to do. Call after each round of transport progress. Returns the number of completions that it
  /// handled, and of steps that it moved forward.
  unsigned run() {
    const bool is_idle =
        !messages_.has_completed() && busy_.empty() && pending_.empty() && views_.empty();
    return is_idle ? 0 : run_round();
  }
  /// Evicts views, since their senders may wait for the slots (HeldViews::evict). Call this before
  /// the thread sleeps. True if any view is evicted.
  bool evict_views() { return views_.evict(active_); }

  /// True if work of a Compute or a gate is pending. No descriptor reports its completion, so run()
  /// must be called to notice it.
  bool has_pending_work() const noexcept { return !pending_.empty(); }

  /// True if some messages of a lane of a collective have not been issued. Exchanges issue all
  /// messages at once.
  static bool has_more(const Execution& execution, std::uint32_t lane) noexcept;

  /// The first execution under way; follow Execution::active_next.
  Execution* active() const noexcept { return active_; }
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
  void run_and_end(Execution& execution);
  void advance(Execution& execution, StepId id);
  void pump(Execution& execution, std::uint32_t lane);
  bool issue(Execution& execution, StepId id, std::uint32_t slice);

  /// True if the output is written with non-temporal stores.
  bool is_non_temporal(const Run& run) const noexcept {
    return run.program->bytes_of(collectives::Buffer::output) >= non_temporal_from_ &&
           !is_over_input(run);
  }
  static bool is_over_input(const Run& run) noexcept;

  EngineListener& listener_;
  Execution* active_ = nullptr;
  std::vector<Execution*> busy_, round_;  ///< The engine holds a reference to each.
  std::uint64_t non_temporal_from_ = kNoOutput;
  MessagePool messages_;
  PendingWork pending_;
  HeldViews views_{listener_, pending_};
  DevicePieces devices_{pending_, views_};
  ExchangeRunner exchanges_{listener_, messages_, views_};
};

}  // namespace xylem::execution
