// SPDX-License-Identifier: Apache-2.0
//
// Group: the state behind the user's Communicator handle. It consists of the members, their
// collectives and their messages. The first error fails the group: all its pending and later
// operations end with this error. Any thread may make calls. control() returns the interface for
// the token holder.
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
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace xylem::runtime {

class Group;

/// Observes the groups of a job. The token holder calls it.
class GroupObserver {
 public:
  /// The group has been made and registered with the job.
  virtual void on_enlisted(Token token, Group& group) = 0;
  /// A collective of the group has been numbered.
  virtual void on_call(Token token, Group& group, const CallRecord& record) = 0;
  /// This rank has left the group. No operation of the group starts after this.
  virtual void on_left(Token token, const Group& group) = 0;
  /// This rank has destroyed the group, which had not failed, while the job continues. on_left()
  /// follows.
  virtual void on_destroyed(Token token, Group& group) = 0;

 protected:
  ~GroupObserver() = default;
};

class Group final : public std::enable_shared_from_this<Group>,
                    public OperationOwner,
                    private GroupControl {
 public:
  /// Acquires the progress token, makes a group and registers it with the job. The group keeps the
  /// context alive; the observer must outlive the group. Any thread may drop the last reference,
  /// even while it holds locks. The group is then destroyed under the progress token: at once if
  /// the token is free, otherwise in the next turn of the token holder or of the progress thread.
  static std::shared_ptr<Group> make(const std::shared_ptr<Context>& context,
                                     GroupObserver& observer,
                                     GroupSpec spec,
                                     collectives::CostModel model);
  /// Makes another group of the same job, like make().
  std::shared_ptr<Group> make_another(GroupSpec spec, collectives::CostModel model) const {
    return make(context_, observer_, std::move(spec), std::move(model));
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();  ///< While the job runs, only the token holder may call it.

  // Any thread may call these functions:
  const GroupSpec& spec() const noexcept { return spec_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  Caller caller() const noexcept { return {spec_.rank, spec_.size(), &context_->devices}; }
  Plans& plans() noexcept { return plans_; }
  Binding binding() const noexcept { return mesh_.binding(); }
  /// See Communicator::bind() and Communicator::bind_later().
  Result<Binding> bind(const Memory& device);
  Status bind_later(const Memory& device) { return mesh_.bind_later(device); }
  /// collective(), send() and recv() make the calls of the user. A call begins at once if the
  /// progress token is free, and may have ended when the function returns. They set the memory of
  /// the buffers, if the user has not stated it.
  Work collective(EvenArguments& arguments);
  Work send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag);
  /// Receives from any rank if `from` is empty.
  Work recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag);
  /// Submits a call whose arguments have been checked. If `checked` is an error, the Work has ended
  /// with this error.
  Work submit(Result<Call> checked);
  /// Returns how often this function was called before. Each split() calls it once. All ranks call
  /// split() in the same order, so the number is the same on all ranks.
  std::uint64_t number_split() noexcept { return splits_.fetch_add(1, std::memory_order_relaxed); }
  /// See Communicator::companion(). The group owns its companion.
  Result<std::shared_ptr<Group>> companion();
  Status destroy();
  Status abort(std::string_view why);
  /// See Communicator::on_failure().
  void on_failure(std::function<void(const Status&)> tell);

  /// The functions that only the token holder may call.
  GroupControl& control(Token /*token*/) noexcept { return *this; }
  /// Makes this rank leave the group: unregisters the group from the job, and releases its header
  /// slots and its tag slot. Call this when the group is destroyed, or before the job ends.
  void leave(Token token);

  void launch(Token token, Operation& operation) noexcept override;
  void on_ended(Token token, Operation& operation) override;
  void on_wire_error(Token token, Operation& operation, std::uint32_t peer, Code code) override;
  Status on_compute_error(Token token, Operation& operation, const Status& why) override;
  MessageListener& message_listener(Token /*token*/) noexcept override { return messages_; }

 private:
  Group(Token token,
        std::shared_ptr<Context> context,
        GroupObserver& observer,
        GroupSpec spec,
        collectives::CostModel model);
  static void retire(Group* group);
  /// The reference that an operation holds to its group. An operation of a companion keeps the
  /// parent alive, which owns the companion.
  std::shared_ptr<OperationOwner> self() noexcept;
  void enlist(Token token);
  /// Informs the other members that this rank makes no further call. Does nothing if the group has
  /// failed, since the other members are informed of the failure.
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
  void on_note(std::uint32_t from, std::span<const std::byte> bytes) override;
  void attach_mesh();
  bool connect(Token token, std::uint32_t rank);
  CallHistory& history() noexcept override { return collectives_.history(); }
  PointToPoint& messages() noexcept override { return messages_; }

  const std::shared_ptr<Context> context_;
  GroupObserver& observer_;
  const GroupSpec spec_;
  std::atomic<std::uint64_t> splits_{0};
  Group* parent_ = nullptr;  ///< Set if this group is a companion.
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
  bool has_left_ = false;  ///< This rank has left the group (leave()).
};

/// All operations of a job belong to groups.
inline Group& group_of(const Operation& operation) noexcept {
  return static_cast<Group&>(*operation.owner);
}

}  // namespace xylem::runtime
