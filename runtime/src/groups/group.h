// SPDX-License-Identifier: Apache-2.0
//
// Group: the state behind the user's Communicator handle. It numbers the calls, adds each to a
// running fingerprint, and knows how to reach the members. The first error poisons the group: all
// its pending and later operations end with that error.
#pragma once

#include "calls/calls.h"
#include "calls/operation.h"
#include "calls/plans.h"
#include "context.h"
#include "failure/situation.h"
#include "groups/group_spec.h"
#include "groups/point_to_point.h"
#include "xylem/base/hash.h"
#include "xylem/base/status.h"
#include "xylem/collectives/cost_model.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/mesh.h"
#include "xylem/runtime/seat.h"
#include "xylem/runtime/work.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

class Group;

/// A group tells its observer what happens to it. Only the token holder calls these functions.
class GroupObserver {
 public:
  /// The group exists, and takes part in the job from now on.
  virtual void on_enlisted(Group& group) = 0;
  /// A call of the group got its number.
  virtual void on_call(Group& group, const CallRecord& record) = 0;
  /// The group was destroyed or closed. No operation of it follows.
  virtual void on_left(const Group& group) = 0;
  /// The group was destroyed in good order while the job goes on. on_left() follows.
  virtual void on_destroyed(const Group& group) = 0;

 protected:
  ~GroupObserver() = default;
};

class Group final : public std::enable_shared_from_this<Group>, public PointToPoint::Client {
 public:
  static constexpr std::uint64_t kCompanion = 0x636f6d70;  ///< Tells the uid of a companion.
  /// How many calls are remembered, for use in verdicts.
  static constexpr std::size_t kRecords = 64;
  /// How many calls before the last `kRecords` keep their history hash. A rank cannot be further
  /// ahead of the others than this.
  static constexpr std::size_t kHistories = 8192;

  /// Makes a group and registers it with the job. The group keeps the context alive; the observer
  /// must outlive the group. Any thread may drop the last reference, also while it holds locks: the
  /// group is destroyed under the progress token, at once if the token is free, and otherwise by
  /// its holder after the current turn.
  static std::shared_ptr<Group> make(const std::shared_ptr<Context>& context,
                                     GroupObserver& observer,
                                     GroupSpec spec,
                                     collectives::CostModel model);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< Called by the token holder, as long as the job runs.

  // Any thread may call these functions:
  std::uint32_t rank() const noexcept { return spec_.rank; }
  std::uint32_t size() const noexcept { return spec_.size(); }
  Caller caller() const noexcept { return {rank(), size(), &context_->devices}; }
  std::uint32_t number() const noexcept { return spec_.number(); }
  std::string label() const { return spec_.label(); }
  /// The limit of each operation that has none of its own.
  std::chrono::nanoseconds timeout() const noexcept {
    return spec_.timeout.value_or(context_->config().timeout);
  }
  std::uint64_t uid() const noexcept { return spec_.uid; }
  /// The uid of the companion, whether there is one already or not.
  std::uint64_t companion_uid() const noexcept { return combine(uid(), kCompanion); }
  std::uint32_t world_rank(std::uint32_t rank) const noexcept { return spec_.world_ranks[rank]; }
  std::optional<std::uint32_t> rank_of(std::uint32_t world_rank) const noexcept {
    return spec_.rank_of(world_rank);
  }
  /// Why no call can be made: the job has shut down, or this is a forked child. OK otherwise.
  Status alive() const noexcept { return context_->process.check(); }
  /// A Work that has already ended with this error.
  static Work refused(Status why);
  /// The calls of the user. A call begins at once if the progress token is free, and may have ended
  /// when the function returns. Fills in where the buffers are, if the caller did not state it.
  Work collective(EvenArguments& arguments);
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag);
  /// Receives from any rank if `from` is empty.
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag);
  /// Submits a call whose arguments have been checked.
  Work submit(Call&& call);
  /// The same; if there is no call, the Work has ended with the error.
  Work submit(Result<Call> call);
  /// See Communicator::bind().
  Result<bool> bind(const Memory& device);
  /// See Runtime::take_seat().
  static Result<Seat> take_seat(const std::shared_ptr<Context>& context);
  /// See Communicator::split(). Null if this rank is in none of the new groups.
  Result<std::shared_ptr<Group>> split(std::int32_t color, std::int32_t key);
  /// See Runtime::form(). The members are among those of this group.
  Result<std::shared_ptr<Group>> form(Seat seat, const Formation& formation) const;
  /// See Communicator::companion(). The group owns it.
  Result<std::shared_ptr<Group>> companion();
  Status destroy();
  Status abort(std::string_view why);
  /// See Communicator::on_failure().
  void on_failure(std::function<void(const Status&)> tell);
  /// The program has ended, so its callback is not called any more. For the token holder.
  void note_end_of_program() noexcept { has_program_ended_ = true; }
  /// How a call of this shape is carried out.
  Result<PlanInfo> explain(const collectives::Shape& shape, std::uint64_t count, DataType type);

  // These functions are for the token holder:
  /// Operations that have begun and not ended.
  std::uint32_t pending() const noexcept { return pending_; }
  Operation& begin_operation() override;
  // These end the process if there is no memory: what has been done with the token cannot be
  // undone.
  /// Launches all submitted operations. They may belong to different groups.
  static void launch_all(Inbox& inbox) noexcept;
  /// Starts a submitted operation. A collective is deferred if kMaxOperations others are running.
  void launch(Operation& operation) noexcept;
  void on_ended(Operation& operation);
  void on_body(Message& message) { messages_.on_body(message); }
  /// `origin` is a world rank.
  void on_refusal(std::uint32_t origin, const Refusal& refusal);
  void on_copied(Operation& operation) { messages_.on_copied(operation); }
  void on_late_gate(Operation& operation, const execution::OnDevice::Copy& copy) {
    messages_.on_late_gate(operation, copy);
  }
  void poison(const Status& why);
  void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) override;
  /// Announces that a wire failed. Waits a moment first: if the control plane reports meanwhile
  /// that the rank died, the death is announced instead, since it says more (failure_detector.h).
  void suspect(Status why) override;
  bool has_left(std::uint32_t rank) const noexcept override {
    return context_->failures.has_left(world_rank(rank));
  }
  /// A rank of the job has left it in good order.
  void note_left(std::uint32_t world_rank) noexcept {
    if (const auto rank = rank_of(world_rank)) messages_.note_left(*rank);
  }
  void send_refusal(const Refusal& refusal) override;
  const Status& health() const noexcept override { return health_; }
  /// True if the group is neither poisoned nor destroyed.
  bool is_well() const noexcept { return health_.is_ok() && !has_left_; }
  /// Sets the cost model. Call it only before the user's first call.
  void set_model(collectives::CostModel model) { plans_.set_model(std::move(model)); }
  const collectives::CostModel& model() const noexcept { return plans_.model(); }
  std::uint64_t next_sequence() const noexcept { return sequence_; }
  /// Messages number the calls of the user, from 1 on. Call this after those of the start. «token»
  /// The calls until begin_user_calls() are those of the start, which have no numbers.
  void begin_start() noexcept { first_user_call_ = std::numeric_limits<std::uint64_t>::max(); }
  void begin_user_calls() noexcept { first_user_call_ = sequence_; }
  bool is_of_start(std::uint64_t sequence) const noexcept { return sequence < first_user_call_; }
  /// What messages call the call with this sequence number.
  std::string name_of_call(std::uint64_t sequence) const;
  std::uint64_t history() const noexcept { return history_; }
  const std::array<CallRecord, kRecords>& records() const noexcept { return records_; }
  /// CallRecord::history of an earlier call. Empty if the call was too long ago to be remembered.
  std::optional<std::uint64_t> history_at(std::uint64_t sequence) const noexcept;
  /// How many elements this rank sends to `rank` in the all_to_all_v with this number. Empty if
  /// that call is not remembered.
  std::optional<std::uint64_t> sent_to(std::uint64_t sequence, std::uint32_t rank) const noexcept;

  /// Leaves the job, which is about to end, and gives back what the group holds of it. Takes the
  /// progress token, so the caller must not hold it.
  void close();

 private:
  Group(std::shared_ptr<Context> context,
        GroupObserver& observer,
        GroupSpec spec,
        collectives::CostModel model);
  static void retire(Group* group);
  /// A reference for operations. A companion lives as long as its parent.
  std::shared_ptr<Group> self() noexcept;
  void enlist();
  Status check(const Formation& formation, std::uint32_t seat) const;
  static Status destroyed();  ///< The error of calls after that.
  // For the token holder only:
  void say_goodbye();
  void leave();
  void equip(Operation& operation) const noexcept;
  Operation& make_operation();
  void count_in(Operation& operation) noexcept;
  void begin(Operation& operation);
  void hand_in(Operation& operation);
  void start_deferred();
  /// True if no other thread has left work for the token holder, and no header has completed.
  bool is_quiet() const noexcept;
  void finish_turn(bool is_over) noexcept;
  std::optional<Work> begin_known(const EvenArguments& arguments) noexcept;
  template <typename TryNow, typename SetCall>
  Work message(const TryNow& try_now, const SetCall& set_call);
  void start_collective(Operation& operation);
  void number(Execution& execution, const CallRecord& call, std::uint64_t label);
  Status prepare(Operation& operation);
  Status connect(Plan& plan);
  static bool set_up_run(
      Run& run, const Plan& plan, const void* input, void* output, double factor) noexcept;
  void place_on_device(Operation& operation) const;
  void reserve_memory(Operation& operation) const;
  static Status take_place_on_stream(Operation& operation);
  bool are_on_one_host() const;
  Status join_mesh(const Memory& device, std::shared_ptr<execution::Mesh>& mesh, double& read_GBps);
  bool runs_on_mesh(const Call& call) const;
  Work submit_on_mesh(Call&& call);
  Status give_to_mesh(Operation& operation);
  Status wait_for_stream(Operation& operation);
  void stop_mesh();
  void wait_for_mesh();
  void leave_mesh_to_parent();

  const std::shared_ptr<Context> context_;
  GroupObserver& observer_;
  const GroupSpec spec_;
  /// How often split() was called. All ranks call it in the same order.
  std::atomic<std::uint64_t> splits_{0};

  Group* parent_ = nullptr;  ///< Of a companion.
  std::mutex companion_mutex_;
  std::shared_ptr<Group> companion_;
  Plans plans_;
  std::uint32_t pending_ = 0;
  execution::Peers peers_;
  Status health_;
  std::function<void(const Status&)> tell_failure_;
  bool has_program_ended_ = false;
  bool has_left_ = false;  ///< The group was destroyed or closed.
  std::uint64_t sequence_ = 0;
  std::uint64_t first_user_call_ = 0;
  std::uint64_t history_ = 0;
  std::array<CallRecord, kRecords> records_{};
  /// History hashes of calls that have left `records_`, in a ring buffer.
  std::vector<std::uint64_t> histories_;
  std::list<std::pair<std::uint64_t, std::vector<std::uint64_t>>>
      sent_counts_;  ///< The counts sent, by call number, of the last few all_to_all_v.
  std::uint32_t running_ = 0;
  /// True while start_deferred() is running. An operation that it starts may end at once and call
  /// it again.
  bool is_starting_ = false;
  Operation* deferred_ = nullptr;
  Operation** deferred_tail_ = &deferred_;
  PointToPoint messages_;
  // Set once, by bind():
  std::shared_ptr<execution::Mesh> mesh_;
  Memory mesh_device_;
  std::atomic<bool> has_mesh_{false};  ///< True when the two are set.
  std::mutex mesh_order_;  ///< Calls on the mesh get their numbers in the order of the streams.
};

}  // namespace xylem::runtime
