// SPDX-License-Identifier: Apache-2.0
//
// Group: the state behind the user's Communicator handle. It has the members, their collectives and
// messages, and ends with the first error: then all its pending and later operations end with that
// error. Any thread may make its calls. What belongs to the token holder is reached by control().
#pragma once

#include "calls/calls.h"
#include "calls/operation.h"
#include "calls/plans.h"
#include "context.h"
#include "groups/collectives.h"
#include "groups/group_control.h"
#include "groups/group_mesh.h"
#include "groups/group_spec.h"
#include "groups/point_to_point.h"
#include "progress/token.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/collectives/cost_model.h"
#include "xylem/execution/link.h"
#include "xylem/runtime/work.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace xylem::runtime {

class Group;

/// A group tells its observer what happens to it.
class GroupObserver {
 public:
  /// The group exists, and takes part in the job from now on.
  virtual void on_enlisted(Token token, Group& group) = 0;
  /// A collective of the group got its number.
  virtual void on_call(Token token, Group& group, const CallRecord& record) = 0;
  /// The group was destroyed or closed. No operation of it follows.
  virtual void on_left(Token token, const Group& group) = 0;
  /// The group was destroyed in good order while the job goes on. on_left() follows.
  virtual void on_destroyed(Token token, Group& group) = 0;

 protected:
  ~GroupObserver() = default;
};

class Group final : public std::enable_shared_from_this<Group>,
                    public OperationOwner,
                    private GroupControl {
 public:
  /// Makes a group and registers it with the job. The group keeps the context alive; the observer
  /// must outlive the group. Any thread may drop the last reference, also while it holds locks: the
  /// group is destroyed under the progress token, at once if the token is free, and otherwise in
  /// the next turn of its holder or of the progress thread. Made under the token.
  static std::shared_ptr<Group> make(const std::shared_ptr<Context>& context,
                                     GroupObserver& observer,
                                     GroupSpec spec,
                                     collectives::CostModel model);
  /// The same for another group of the same job.
  std::shared_ptr<Group> make_another(GroupSpec spec, collectives::CostModel model) const {
    return make(context_, observer_, std::move(spec), std::move(model));
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< Called by the token holder, as long as the job runs.

  // Any thread may call these functions:
  const GroupSpec& spec() const noexcept { return spec_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  Caller caller() const noexcept { return {spec_.rank, spec_.size(), &context_->devices}; }
  Plans& plans() noexcept { return plans_; }
  GroupMesh& mesh() noexcept { return mesh_; }
  /// The calls of the user. A call begins at once if the progress token is free, and may have ended
  /// when the function returns. Sets where the buffers are, if the caller did not state it.
  Work collective(EvenArguments& arguments);
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag);
  /// Receives from any rank if `from` is empty.
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag);
  /// Submits a call whose arguments have been checked. If there is no call, the Work has ended with
  /// the error.
  Work submit(Result<Call> checked);
  /// How often split() was called before. All ranks call it in the same order.
  std::uint64_t number_split() noexcept { return splits_.fetch_add(1, std::memory_order_relaxed); }
  /// See Communicator::companion(). The group owns it.
  Result<std::shared_ptr<Group>> companion();
  Status destroy();
  Status abort(std::string_view why);
  /// See Communicator::on_failure().
  void on_failure(std::function<void(const Status&)> tell);

  /// What only the token holder may use.
  GroupControl& control(Token /*token*/) noexcept { return *this; }
  /// Leaves the job, which is about to end, and returns what the group holds of it.
  void leave(Token token);

  void launch(Token token, Operation& operation) noexcept override;
  void on_ended(Token token, Operation& operation) override;
  void on_wire_error(Token token, Operation& operation, std::uint32_t peer, Code code) override;
  void on_compute_error(Token token, Operation& operation, const Status& why) override;
  MessageListener& message_listener(Token /*token*/) noexcept override { return messages_; }

 private:
  Group(Token token,
        std::shared_ptr<Context> context,
        GroupObserver& observer,
        GroupSpec spec,
        collectives::CostModel model);
  static void retire(Group* group);
  /// A reference for operations. A companion lives as long as its parent.
  std::shared_ptr<OperationOwner> self() noexcept;
  void enlist(Token token);
  /// Tells the other members that this one makes no further call. They know already if the group
  /// has failed.
  void say_goodbye(Token token);
  Operation& make_operation();
  Operation& activate(Operation& operation);
  template <typename TryNow, typename SetCall>
  Work message(const TryNow& try_now, const SetCall& set_call);

  const Status& health() const noexcept override { return health_; }
  void poison(const Status& why) override;
  void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) override;
  void suspect(Status why) override;
  bool has_left(std::uint32_t rank) const noexcept override;
  std::uint32_t pending() const noexcept override { return pending_; }
  Operation& begin_operation() override;
  Operation& adopt_spare() override;
  void on_call(const CallRecord& record) override;
  CallHistory& history() noexcept override { return collectives_.history(); }
  PointToPoint& messages() noexcept override { return messages_; }

  const std::shared_ptr<Context> context_;
  GroupObserver& observer_;
  const GroupSpec spec_;
  std::atomic<std::uint64_t> splits_{0};
  Group* parent_ = nullptr;  ///< Of a companion.
  Mutex companion_mutex_;    ///< Held while the companion is made.
  std::shared_ptr<Group> companion_;
  Plans plans_;
  GroupMesh mesh_;
  execution::Peers peers_;
  Collectives collectives_;
  PointToPoint messages_;
  std::uint32_t pending_ = 0;
  Status health_;
  std::function<void(const Status&)> tell_failure_;
  bool has_failed_ = false;
  bool has_left_ = false;  ///< The group was destroyed or closed.
};

/// All operations of a job belong to groups.
inline Group& group_of(const Operation& operation) noexcept {
  return static_cast<Group&>(*operation.owner);
}

}  // namespace xylem::runtime
