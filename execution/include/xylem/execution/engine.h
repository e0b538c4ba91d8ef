// SPDX-License-Identifier: Apache-2.0
//
// Engine: the one interpreter of schedules. It runs programs slice by slice: a slice is issued when
// the slices it waits for have completed, and messages of a lane go in list order with at most
// `window` in flight. Copies and reductions are enqueued on the execution's Compute, one slice of
// each step in a round, so that messages are heard in between. On the CPU they are done at once. On
// a device they are pending for a while, and copies and reductions of their results are enqueued
// behind them without waiting; messages wait until they have completed. Nothing on a step's path
// locks, calls the system or formats text, and nothing allocates but lists of pending work that
// grow.
//
// Where the CPU computes and the transport shares memory, steps are fused. A reduction reads
// messages where they arrived; what it makes and sends on, and what goes to several peers, is
// written once, into memory that the peers read, and copied from there to its own place. A copy of
// what is sent is made while it is: what is read from memory is written twice, piece by piece.
// Results and order are those of the steps one by one.
//
// One thread at a time calls it.
#pragma once

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
#include <vector>

namespace xylem::execution {

/// A program that is an exchange, with the endpoints of a group whose members all share memory: it
/// can be run within a call.
struct Exchange {
  struct Message {
    StepId step = 0;
    transport::EndpointId endpoint = 0;
    transport::Tag tag = 0;  ///< But for what each call adds.
    std::uint64_t bytes = 0;
  };
  /// Sends of the same bytes: in entries, or in one slot for all of them.
  struct Cast {
    std::uint32_t first = 0, count = 0;  ///< Of `sends`, and of their `endpoints`.
  };

  const Program* program = nullptr;
  transport::Transport* transport = nullptr;  ///< Null where there is no message.
  std::uint64_t inline_bytes = 0;
  std::vector<Message> sends, receives;
  std::vector<transport::EndpointId> endpoints;  ///< Of the sends.
  std::vector<Cast> casts;

  /// What is known before the peers are connected; none if the program is no exchange. `group` is
  /// Peers::group. The program outlives the result.
  static std::optional<Exchange> of(const Program& program,
                                    std::uint32_t rank,
                                    std::uint32_t group);
  /// Fills in how the peers are reached. False if a message goes over a wire that shares no memory.
  bool connect(const Peers& peers) noexcept;
};

/// Hears how executions end and what goes wrong on the wire.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// No message of it is posted any more. The engine has let go of it.
  virtual void on_ended(Execution& execution, Status outcome) = 0;
  /// A message to or from `peer` failed; the listener decides what fails. kNone: the message is
  /// that of a point-to-point call.
  virtual void on_wire_error(Execution& execution, std::uint32_t peer, Code code) = 0;
  /// The execution's Compute has had a fault; the listener decides what fails.
  virtual void on_compute_error(Execution& execution, const Status& why) = 0;
  /// A message of a point-to-point call (step kPointToPoint) has ended well.
  virtual void on_body(Message& message) = 0;
  /// A copy of a point-to-point call (Engine::post_copy) has ended well.
  virtual void on_copied(Execution& execution) = 0;
};

class Engine {
 public:
  static constexpr std::uint32_t kPointToPoint = collectives::kNone;
  static constexpr std::uint64_t kNoOutput = ~std::uint64_t{0};

  explicit Engine(EngineListener& listener) : listener_(listener) {}
  /// How to poll for what is about to come; without it, nothing is polled for.
  void set_patience(Patience patience) noexcept { patience_ = patience; }
  /// Outputs from this size on are written past the cache, but over their own input.
  void set_past_cache_from(std::uint64_t bytes) noexcept { past_cache_from_ = bytes; }

  /// Runs an exchange as far as it goes at once, on an execution that is prepared as for start(),
  /// and that the engine does not know yet. True if that was all of it: then it has ended well, and
  /// nobody else hears of that. If not, it goes on by activate() and start().
  bool try_start(Execution& execution, const Exchange& exchange);
  /// Starts a collective whose `run.program`, `run.base`, `run.factor`, `run.device`, `sequence`
  /// and `fingerprint` are set, and runs it as far as it goes. It may end within. With a Compute
  /// that has queues, the program must be one that does not fuse (ProgramOptions::fuses).
  void start(Execution& execution);
  /// For messages that are about to come.
  Patience patience() const noexcept { return patience_.fresh(); }
  /// Posts one message for a point-to-point call; its completion goes to on_body().
  Message& post_send(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::ConstRegion source);
  Message& post_recv(Execution& execution,
                     Link link,
                     transport::Tag tag,
                     transport::Tag mask,
                     transport::Region target);
  /// Copies bytes for a point-to-point call by its device, `run.device`, after its gate.
  /// on_copied() follows, perhaps within. Until then the execution does not end.
  void post_copy(Execution& execution, void* target, const void* source, std::uint64_t bytes);
  /// Fails it: nothing more is issued, its messages are cancelled, and on_ended() follows when the
  /// last of them has ended.
  void fail(Execution& execution, Status why);
  /// Ends an execution that has no message posted.
  void finish(Execution& execution, Status outcome);
  /// Runs what completions have made ready, and a round of what has more to do; call after each
  /// round of transport progress. Returns how many slices it moved.
  unsigned run() {
    const bool is_idle =
        completed_ == nullptr && busy_.empty() && pending_count_ == 0 && views_held_ == 0;
    return is_idle ? 0 : run_round();
  }
  /// Gives up views of messages that wait for others, whose senders may wait for their room: before
  /// a sleep. True if there were any.
  bool relieve();
  /// How many views have been given up for others so far. One call by itself never needs it
  /// (verify_program.h); several calls at once may.
  std::uint64_t views_given_up() const noexcept { return views_given_up_; }

  /// Whether work of a Compute, or a gate, is pending. No descriptor tells when it completes: run()
  /// must be called to find out.
  bool has_pending_work() const noexcept { return pending_count_ > 0; }

  /// Whether messages of a lane of a collective have not been issued. Exchanges issue all at once.
  static bool has_more(const Execution& execution, std::uint32_t lane) noexcept;

  /// The first execution under way; follow Execution::active_next.
  Execution* active() const noexcept { return active_; }
  void activate(Execution& execution) noexcept;

 private:
  /// A slice that a Compute has not completed, or a copy of a point-to-point call (kPointToPoint).
  struct PendingWork {
    Execution* execution = nullptr;
    StepId step = collectives::kNone;
    std::uint32_t slice = 0;
    Ticket ticket;
  };
  /// What is pending on one queue, in its order.
  struct PendingQueue {
    Compute* compute = nullptr;
    std::uint32_t queue = 0;
    std::deque<PendingWork> work;
  };

  unsigned run_round();
  static void on_done(transport::Operation& done) noexcept;

  Message& take_message(Execution& execution);
  void drop_message(Message& message) noexcept;
  void completed(Message& message);
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
  /// Whether the output is written past the cache.
  bool is_past_cache(const Run& run) const noexcept {
    return run.program->output_bytes >= past_cache_from_ && !is_over_input(run);
  }
  static bool is_over_input(const Run& run) noexcept;
  static transport::Tag tag_of(const Execution& execution,
                               const ProgramStep& step,
                               std::uint32_t slice);
  static std::byte* place_of(const Run& run, const Place& place, std::uint32_t slice) noexcept {
    return run.base[static_cast<int>(place.buffer)] + run.program->slice_offset(place, slice);
  }
  static void bring(const Run& run,
                    const ProgramStep& step,
                    std::uint32_t slice,
                    const std::byte* data);
  Ticket run_local(Execution& execution, StepId id, std::uint32_t slice);
  void take_slice(Execution& execution, StepId id, std::uint32_t slice, HeldView view);
  static std::span<const void*> find_sources(Run& run,
                                             const ProgramStep& step,
                                             std::uint32_t slice);
  static ComputeWork work_of(Run& run,
                             const ProgramStep& step,
                             std::uint32_t slice,
                             std::byte* target);
  Ticket compute(Execution& execution, StepId id, std::uint32_t slice, std::byte* target);
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
  void lose_view(Execution& execution, StepId id);
  void look_at_views();

  // Pending work.
  void find_pending(const Execution& execution, const ProgramStep& step, std::uint32_t slice);
  void add_pending(const PendingWork& work);
  void await(Execution& execution, StepId id, std::uint32_t slice, Ticket ticket);
  void await_gate(Execution& execution);
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
  std::vector<Execution*> busy_, round_;  ///< With a reference to each.
  std::uint64_t moved_ = 0;               ///< Slices.
  std::uint32_t views_held_ = 0;
  std::uint64_t views_touched_ = 0;  ///< Taken and given up, ever; and as of the last run().
  std::uint64_t views_touched_before_ = 0;
  std::uint32_t still_turns_ = 0;
  std::uint64_t views_given_up_ = 0;
  Patience patience_;
  std::uint64_t past_cache_from_ = kNoOutput;
  HostCompute host_;
  std::deque<PendingQueue> pending_;
  std::vector<Execution*> closed_gates_;               ///< Executions whose gate is not open.
  std::uint32_t pending_count_ = 0;                    ///< Of both.
  std::vector<Ticket> after_;                          ///< What the slice at hand has to follow.
  std::vector<const Exchange::Message*> expected_;     ///< By try_start(): messages yet to come.
  std::vector<StepId> reserved_;                       ///< Sends that a reserved slot is for,
  std::vector<transport::EndpointId> reserved_peers_;  ///< and where to,
  transport::Transport* reserved_on_ = nullptr;        ///< over which.
  std::vector<std::unique_ptr<Message[]>> message_blocks_;
  Message* free_messages_ = nullptr;
  Message* completed_ = nullptr;  ///< Messages whose callback has come, oldest first.
  Message** completed_tail_ = &completed_;
};

}  // namespace xylem::execution
