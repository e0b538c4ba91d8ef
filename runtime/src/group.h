// SPDX-License-Identifier: Apache-2.0
//
// Group: what a Communicator stands for. It numbers calls, folds each into a running fingerprint,
// and knows how to reach its members. The first error poisons it: all
// pending and later operations end with that error.
#pragma once

#include "calls.h"
#include "context.h"
#include "group_spec.h"
#include "operation.h"
#include "plans.h"
#include "point_to_point.h"
#include "situation.h"
#include "xylem/base/status.h"
#include "xylem/collectives/choose.h"
#include "xylem/execution/engine.h"
#include "xylem/runtime/work.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

class Group;

/// Hears what groups do. Token holder only.
class GroupObserver {
 public:
  /// The group is made.
  virtual void on_enlisted(Group& group) = 0;
  /// A call was numbered.
  virtual void on_call(Group& group, const CallRecord& record) = 0;
  /// The group takes no part any more.
  virtual void on_left(const Group& group) = 0;

 protected:
  ~GroupObserver() = default;
};

class Group final : public std::enable_shared_from_this<Group>, public PointToPoint::Client {
 public:
  static constexpr std::size_t kRecords = 64;  ///< Calls remembered for verdicts.
  /// Calls of which it is remembered what came before: more than a rank can be ahead of others.
  static constexpr std::size_t kHistories = 8192;

  /// Makes and enlists it; it keeps the context, and the observer outlives it. Whoever drops the
  /// last reference, and whatever he holds, it ends under the progress token: at once, or after the
  /// turn that goes on.
  static std::shared_ptr<Group> make(const std::shared_ptr<Context>& context,
                                     GroupObserver& observer,
                                     GroupSpec spec,
                                     collectives::CostModel model);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< Token holder, as long as the job runs.

  // Any thread.
  std::uint32_t rank() const noexcept { return spec_.rank; }
  std::uint32_t size() const noexcept { return spec_.size(); }
  Caller caller() const noexcept { return {rank(), size(), &context_->devices}; }
  std::uint32_t slot() const noexcept { return spec_.slot; }
  std::uint64_t uid() const noexcept { return spec_.uid; }
  std::uint32_t world_rank(std::uint32_t rank) const noexcept { return spec_.world_ranks[rank]; }
  std::optional<std::uint32_t> rank_of(std::uint32_t world_rank) const noexcept {
    return spec_.rank_of(world_rank);
  }
  /// A Work that has ended with this error.
  static Work refused(Status why);
  /// Calls; they begin at once if nobody else drives the job, and may be over when these return.
  Work collective(const EvenArguments& arguments);
  Work send(const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag);
  /// From any rank where `from` is none.
  Work recv(const Buffer& buffer, std::optional<std::uint32_t> from, std::uint32_t tag);
  /// A call that has been checked.
  Work submit(Call&& call);
  /// As Communicator::split(); null if this rank takes part in none.
  Result<std::shared_ptr<Group>> split(std::int32_t color, std::int32_t key);
  Status destroy();
  Status abort(std::string_view why);
  /// How a call of this shape is carried out.
  Result<collectives::Choice> choose(const collectives::Shape& shape,
                                     std::uint64_t count,
                                     DataType type);

  // Token holder.
  /// Operations that have begun and not ended.
  std::uint32_t pending() const noexcept { return pending_; }
  Operation& begin_operation() override;
  // Without memory, what runs under the token cannot be undone: then the process ends.
  /// Launches all operations that have been submitted, of whatever groups.
  static void launch_all(Inbox& inbox) noexcept;
  /// Takes a submitted operation: starts it, or defers it behind kMaxOperations others.
  void launch(Operation& operation) noexcept;
  void on_ended(Operation& operation);
  void on_body(Message& message) { messages_.on_body(message); }
  void on_copied(Operation& operation) { messages_.on_copied(operation); }
  void poison(const Status& why);
  void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) override;
  /// Announces that a wire failed, unless the control plane tells within a moment that the rank
  /// died, which says more (failure_detector.h).
  void suspect(Status why) override;
  const Status& health() const noexcept override { return health_; }
  /// Neither poisoned nor destroyed.
  bool is_well() const noexcept { return health_.is_ok() && !has_left_; }
  /// Before the first call of a user.
  void set_model(collectives::CostModel model) { plans_.set_model(std::move(model)); }
  const collectives::CostModel& model() const noexcept { return plans_.model(); }
  std::uint64_t next_sequence() const noexcept { return sequence_; }
  std::uint64_t history() const noexcept { return history_; }
  const std::array<CallRecord, kRecords>& records() const noexcept { return records_; }
  /// CallRecord::history of an earlier call; none if it was too long ago.
  std::optional<std::uint64_t> history_at(std::uint64_t sequence) const noexcept;
  /// Elements this rank says it sends to `rank` in an all_to_all_v it remembers.
  std::optional<std::uint64_t> sent_to(std::uint64_t sequence, std::uint32_t rank) const noexcept;

  /// Takes no part any more and gives back what it holds of the job; the job ends. Not for the
  /// token holder.
  void close();

 private:
  Group(std::shared_ptr<Context> context,
        GroupObserver& observer,
        GroupSpec spec,
        collectives::CostModel model);
  static void retire(Group* group);
  void enlist();
  std::shared_ptr<Group> make_part(const std::vector<std::uint32_t>& ranks,
                                   std::uint64_t uid,
                                   std::uint32_t slot) const;
  void leave();  ///< Token holder.
  Operation& make_operation();
  void count_in(Operation& operation) noexcept;
  void hand_in(Operation& operation);
  void start_deferred();
  /// Whether nobody has left anything for the token holder.
  bool is_quiet() const noexcept;
  void finish_turn(bool is_over) noexcept;
  std::optional<Work> begin_known(const EvenArguments& arguments) noexcept;
  template <typename TryNow, typename SetCall>
  Work message(const TryNow& try_now, const SetCall& set_call);
  void start_collective(Operation& operation);
  void number(Execution& execution, const CallRecord& call);
  Status prepare(Operation& operation);
  Status connect(Plan& plan);
  static bool bind(
      Run& run, const Plan& plan, const void* input, void* output, double factor) noexcept;
  void place_on_device(Operation& operation) const;

  const std::shared_ptr<Context> context_;
  GroupObserver& observer_;
  const GroupSpec spec_;
  std::atomic<std::uint64_t> splits_{0};  ///< Calls of split(), in the same order on all ranks.

  Plans plans_;
  std::uint32_t pending_ = 0;
  execution::Peers peers_;
  Status health_;
  bool has_left_ = false;  ///< Destroyed or closed: takes no part any more.
  std::uint64_t sequence_ = 0;
  std::uint64_t history_ = 0;
  std::array<CallRecord, kRecords> records_{};
  std::vector<std::uint64_t> histories_;  ///< Of calls that are no more in `records_`; a ring.
  std::list<std::pair<std::uint64_t, std::vector<std::uint64_t>>>
      sent_counts_;  ///< Of the last few all_to_all_v.
  std::uint32_t running_ = 0;
  bool is_starting_ = false;  ///< Within start_deferred(), which operations that end at once call.
  Operation* deferred_ = nullptr;
  Operation** deferred_tail_ = &deferred_;
  PointToPoint messages_;
};

}  // namespace xylem::runtime
