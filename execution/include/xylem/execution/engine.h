// SPDX-License-Identifier: Apache-2.0
//
// Engine: the interpreter that runs all programs. It runs them slice by slice. A slice is issued
// when the slices for which it waits have completed. Messages of a lane are issued in list order,
// with at most `window` in flight. Copies and reductions are enqueued on the execution's Compute,
// one slice of each step in a round, so that messages are handled in between. On the CPU they are
// done at once. On a device they are pending for a while: copies and reductions that use their
// results are enqueued behind them without waiting, but messages wait until they have completed.
// While a device is busy with a step, further slices of the step gather, and are then enqueued as
// one piece.
// Nothing on the path of a step takes a lock, makes a system call or formats text. Nothing there
// allocates, except lists of pending work when they grow.
//
// If the CPU computes and the transport shares memory, steps are fused. A reduction reads messages
// where they arrived. Results that are sent on, and messages to several peers, are written once,
// into memory that the peers read; results are then copied from there to their own place. A copy of
// bytes that are also sent is made together with the send: the bytes are read once and written to
// both places, piece by piece. Results and order are the same as without fusion.
//
// Only one thread at a time may call the engine.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/execution.h"
#include "xylem/execution/host_compute.h"
#include "xylem/execution/link.h"
#include "xylem/execution/patience.h"
#include "xylem/execution/program.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace xylem::execution {

/// An exchange (Program::is_exchange) whose peers all share memory with this rank. The engine can
/// run it within the call, by try_start().
struct Exchange {
  struct Message {
    StepId step = 0;
    transport::EndpointId endpoint = 0;
    transport::Tag tag = 0;  ///< Without the parts that differ from call to call.
    std::uint64_t bytes = 0;
  };
  /// Sends of the same bytes to several peers: one inline message for each, or one slot for all.
  struct Cast {
    std::uint32_t first = 0, count = 0;  ///< A range of `sends`, and of `endpoints`.
  };

  const Program* program = nullptr;
  transport::Transport* transport = nullptr;  ///< Null if there are no messages.
  transport::Views* views = nullptr;          ///< Those of the transport.
  std::uint64_t inline_bytes = 0;
  std::vector<Message> sends, receives;
  std::vector<transport::EndpointId> endpoints;  ///< One for each send.
  std::vector<Cast> casts;

  /// The part that is known before the peers are connected. Empty if the program is not an
  /// exchange. `groups` is Peers::groups. The program must outlive the result.
  static std::optional<Exchange> of(const Program& program,
                                    std::uint32_t rank,
                                    std::span<const transport::Tag> groups);
  /// Fills in the transport and the endpoints of the peers. False if a message cannot go through
  /// the shared memory of one transport.
  bool connect(const Peers& peers) noexcept;
};

/// The engine tells its listener how executions end, and which messages and computations fail.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// The execution has ended. None of its messages is posted any more, and the engine does not
  /// refer to it.
  virtual void on_ended(Execution& execution, Status outcome) = 0;
  /// A message to or from `peer` failed. The listener decides which executions fail. `peer` is
  /// kNone if the message is that of a point-to-point call.
  virtual void on_wire_error(Execution& execution, std::uint32_t peer, Code code) = 0;
  /// The execution's Compute has had a fault. The listener decides which executions fail.
  virtual void on_compute_error(Execution& execution, const Status& why) = 0;
  /// A message of a point-to-point call (step kPointToPoint) has ended without an error. The call
  /// may have failed before that.
  virtual void on_body(Message& message) = 0;
  /// A copy of a point-to-point call (Engine::post_copy) has ended without an error.
  virtual void on_copied(Execution& execution) = 0;
  /// The gate did not open within the limit of Engine::post_copy(). The copy has not begun, and is
  /// the listener's now, with its view. The execution does not end before this returns.
  virtual void on_late_gate(Execution& execution, const OnDevice::Copy& copy) = 0;
};

class Engine {
 public:
  static constexpr std::uint32_t kPointToPoint = collectives::kNone;
  static constexpr std::uint64_t kNoOutput = ~std::uint64_t{0};

  explicit Engine(EngineListener& listener) : listener_(listener) {}
  /// How try_start() polls for messages that are about to arrive. By default it does not poll.
  void set_patience(Patience patience) noexcept { patience_ = patience; }
  /// Outputs of at least this size are written with non-temporal stores, except when they overwrite
  /// their own input.
  void set_past_cache_from(std::uint64_t bytes) noexcept { past_cache_from_ = bytes; }

  /// Runs an exchange as far as it can go at once. The execution is prepared as for start(), and
  /// not yet known to the engine. True if the exchange has ended without an error; the listener is
  /// not told of that end. Otherwise continue with activate() and start().
  bool try_start(Execution& execution, const Exchange& exchange);
  /// Starts a collective whose `run.program`, `run.base`, `run.factor`, `run.device`, `sequence`
  /// and `fingerprint` are set, and runs it as far as it can go at once. It may end within this
  /// call. If its Compute has queues, the program must be compiled with Fusion::none or
  /// Fusion::views.
  void start(Execution& execution);
  /// A Patience of the same kind, for callers that poll for messages of their own.
  Patience patience() const noexcept { return patience_.fresh(); }
  /// Posts one message for a point-to-point call; its completion goes to on_body(). If the call is
  /// on a device, a received message may be shown in place (Message::view).
  Message& post_send(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::ConstRegion source);
  Message& post_recv(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::Tag mask,
                     transport::Region target);
  /// Lets the device of a point-to-point call (`run.device`) copy bytes, after its gate has opened.
  /// on_copied() follows, possibly within this call; or on_late_gate() if the gate has not opened
  /// before `limit`. The execution does not end before that.
  void post_copy(Execution& execution,
                 const OnDevice::Copy& copy,
                 Deadline limit = Deadline::at(Clock::time_point::max()));
  /// The same, but the gate need not be open.
  void post_copy_before_gate(Execution& execution, const OnDevice::Copy& copy);
  /// Fails an execution: nothing more is issued, and its messages and pending work are cancelled.
  /// on_ended() follows when the last message and the last pending work have ended.
  void fail(Execution& execution, Status why);
  /// Ends an execution that has no message posted.
  void finish(Execution& execution, Status outcome);
  /// Runs all steps that completions have made ready, and one round of each execution that has more
  /// to do. Call after each round of transport progress. Returns the number of slices that were
  /// moved.
  unsigned run() {
    const bool is_idle =
        completed_ == nullptr && busy_.empty() && pending_count_ == 0 && views_held_ == 0;
    return is_idle ? 0 : run_round();
  }
  /// Copies viewed messages to their own places, and gives up their views, since their senders may
  /// wait for the slots. A view in device memory is given up when its device has copied it. It
  /// stays if work of the device reads it already. It also stays if only one call holds views:
  /// device memory occupies no slots, and a call that runs alone needs no others. Call before a
  /// sleep. True if any view is given up.
  bool relieve();
  /// How many views relieve() has given up so far. A call that runs alone never needs this
  /// (verify_program.h), but several calls at once may.
  std::uint64_t views_given_up() const noexcept { return views_given_up_; }

  /// True if work of a Compute or a gate is pending. No descriptor reports its completion, so run()
  /// must be called to notice it.
  bool has_pending_work() const noexcept { return pending_count_ > 0; }

  /// True if some messages of a lane of a collective have not been issued. Exchanges issue all
  /// messages at once.
  static bool has_more(const Execution& execution, std::uint32_t lane) noexcept;

  /// The first execution under way; follow Execution::active_next.
  Execution* active() const noexcept { return active_; }
  void activate(Execution& execution) noexcept;

 private:
  /// A slice that a Compute has not completed, or a copy of a point-to-point call (then `step` is
  /// kPointToPoint).
  struct PendingWork {
    Execution* execution = nullptr;
    StepId step = collectives::kNone;
    std::uint32_t slice = 0;
    Ticket ticket;
    HeldView view{};  ///< If it has views: what the work reads. It is released after the work.
    bool puts_away = false;  ///< The work copies a view of Run::views to its place.
    /// False if the next work of the queue is another slice of the same piece, which ends with it.
    bool is_last = true;
  };
  /// An execution whose gate has not opened.
  struct ClosedGate {
    Execution* execution = nullptr;
    Deadline limit;  ///< When on_late_gate() is called.
  };
  /// Consecutive slices of a step.
  struct Slices {
    std::uint32_t first = 0, count = 1;

    std::uint32_t last() const noexcept { return first + count - 1; }
  };
  /// The pending work of one queue, in order.
  struct PendingQueue {
    Compute* compute = nullptr;
    std::uint32_t queue = 0;
    std::deque<PendingWork> work;
  };

  static void renew_device_memory(const Execution& execution) noexcept;
  unsigned run_round();
  static void on_done(transport::Operation& done) noexcept;

  Message& take_message(Execution& execution);
  void drop_message(Message& message) noexcept;
  void completed(Message& message);
  void report(Execution& execution, std::uint32_t peer, Code code);
  void end_if_idle(Execution& execution);
  void deactivate(Execution& execution) noexcept;

  // Rounds.
  void run_ready(Execution& execution);
  void advance(Execution& execution, StepId id);
  void pump(Execution& execution, std::uint32_t lane);
  bool post(Execution& execution, StepId id, std::uint32_t slice);
  void send_with_copy(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  static bool post_message(Execution& execution, StepId id, std::uint32_t slice, Message& message);
  static transport::ConstRegion source_of(const Run& run,
                                          const ProgramStep& step,
                                          std::uint32_t slice) noexcept;
  void slice_done(Execution& execution, StepId id, std::uint32_t slice);
  static StepId head_of(Execution& execution, std::uint32_t lane) noexcept;
  static void queue(Execution& execution, StepId id);
  static void queue_again(Execution& execution, StepId id);

  // Exchanges.
  void post_rest(Execution& execution);
  void post_one(Execution& execution, StepId id);
  static bool send_now(Execution& execution, const Exchange& exchange);
  bool receive_now(Execution& execution, const Exchange& exchange);
  void exchanged(Message& message);
  void took(Execution& execution, StepId id, Code code, std::uint64_t bytes);
  void finish_if_last(Execution& execution);
  StepId finish_exchange(Run& run);

  // Bytes.
  /// True if the output is written with non-temporal stores.
  bool is_past_cache(const Run& run) const noexcept {
    return run.program->output_bytes >= past_cache_from_ && !is_over_input(run);
  }
  static bool is_over_input(const Run& run) noexcept;
  static transport::Tag tag_of(const Execution& execution,
                               const ProgramStep& step,
                               std::uint32_t slice);
  static std::byte* place_of(const Run& run, const Place& place, std::uint32_t slice) noexcept {
    return run.base[place.base] + run.program->slice_offset(place, slice);
  }
  static void bring(const Run& run,
                    const ProgramStep& step,
                    std::uint32_t slice,
                    const std::byte* data);
  void run_local(Execution& execution, StepId id, std::uint32_t slice);
  void advance_on_device(Execution& execution, StepId id, std::uint32_t ready);
  static bool is_adjacent(const Run& run, const ProgramStep& step, std::uint32_t slice) noexcept;
  void take_slice(Execution& execution, StepId id, std::uint32_t slice, HeldView view);
  static std::span<const void*> find_sources(Run& run,
                                             const ProgramStep& step,
                                             std::uint32_t slice);
  static ComputeWork work_of(Run& run,
                             const ProgramStep& step,
                             const Slices& slices,
                             std::byte* target);
  Ticket compute(Execution& execution, StepId id, const Slices& slices, std::byte* target);
  void compute_shared(Execution& execution,
                      const ProgramStep& step,
                      std::uint32_t slice,
                      const transport::Reservation& slot,
                      std::byte* target);
  transport::Room reserve(Execution& execution,
                          const ProgramStep& step,
                          StepId maker,
                          std::uint32_t slice,
                          transport::Reservation& slot);
  void commit(Execution& execution, std::uint32_t slice);
  void release_and_commit(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  void release_views(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  void release(Execution& execution, HeldView& held);
  void put_away(Execution& execution, HeldView& held);
  void lose_view(Execution& execution, StepId id);
  void look_at_views();

  // Pending work.
  void find_pending(const Execution& execution, const ProgramStep& step, std::uint32_t slice);
  void add_pending(const PendingWork& work);
  void await(Execution& execution, StepId id, const Slices& piece, Ticket ticket);
  void await_gate(Execution& execution, Deadline limit = Deadline::at(Clock::time_point::max()));
  void give_up_gate(Execution& execution);
  void begin_copy(Execution& execution);
  static Ticket copy_to_place(const Run& run, const HeldView& view, std::uint32_t slices = 1);
  void fetch(Execution& execution, StepId id);
  void fetch_piece(Execution& execution, std::size_t first, std::uint32_t slices);
  static void mark_read(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept;
  void put_away_on_device(Execution& execution, HeldView& held);
  void end_put_away(const PendingWork& work);
  static bool waits_for_put_away(const Run& run,
                                 const ProgramStep& step,
                                 std::uint32_t slice) noexcept;
  static void queue_all(Run& run);
  PendingQueue& pending_queue(Compute& compute, std::uint32_t queue);
  void look_at_work();
  void work_ended(const PendingWork& work);
  void advance_after(const PendingWork& work);
  void open_gate(Execution& execution);
  static void forget_gate(OnDevice& device) noexcept;
  void run_and_end(Execution& execution);
  void cancel_work(Execution& execution);

  EngineListener& listener_;
  Execution* active_ = nullptr;
  std::vector<Execution*> busy_, round_;  ///< The engine holds a reference to each.
  std::uint64_t moved_ = 0;               ///< Number of slices that have been moved so far.
  std::uint32_t views_held_ = 0;
  std::uint32_t views_on_device_ = 0;  ///< How many of these are in the memory of a device.
  /// How often a view was taken or given up, in total and up to the last run().
  std::uint64_t views_touched_ = 0;
  std::uint64_t views_touched_before_ = 0;
  std::uint32_t still_turns_ = 0;
  std::uint64_t views_given_up_ = 0;
  Patience patience_;
  std::uint64_t past_cache_from_ = kNoOutput;
  HostCompute host_;
  std::deque<PendingQueue> pending_;
  std::vector<ClosedGate> closed_gates_;
  /// Number of pieces of work in `pending_`, plus the number of closed gates.
  std::uint32_t pending_count_ = 0;
  /// The tickets of the pending work that the slice being enqueued must follow.
  std::vector<Ticket> after_;
  /// Used by try_start(): messages that have not arrived.
  std::vector<const Exchange::Message*> expected_;
  /// The sends for which a slot is reserved, the endpoint of each of them, and the views of their
  /// transport.
  std::vector<StepId> reserved_;
  std::vector<transport::EndpointId> reserved_peers_;
  transport::Views* reserved_on_ = nullptr;
  std::vector<std::unique_ptr<Message[]>> message_blocks_;
  Message* free_messages_ = nullptr;
  /// Messages that have completed and are not handled yet, oldest first.
  Message* completed_ = nullptr;
  Message** completed_tail_ = &completed_;
};

}  // namespace xylem::execution
