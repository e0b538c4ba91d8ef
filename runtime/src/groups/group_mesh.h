// SPDX-License-Identifier: Apache-2.0
//
// GroupMesh: the devices that the ranks of a group have bound. If every rank has bound a device,
// the ranks agree in each call on the kind of memory (Agreement). If each device also reaches the
// memory of the others, the devices form a mesh (execution/mesh.h), and calls on streams run on the
// mesh: the devices carry them out by themselves.
//
// A call on the mesh is also an operation of the engine: a barrier, which begins when the stream
// has completed the call. So the call fails as other calls do: a disagreement is detected, a rank
// that does not make the call is named, and time-outs and deaths end the call. When the barrier
// ends with an error, the mesh is stopped, and its blocked streams are released.
#pragma once

#include "calls/operation.h"
#include "calls/plans.h"
#include "context.h"
#include "groups/gather_from_all.h"
#include "groups/group_spec.h"
#include "progress/token.h"
#include "xylem/base/memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/mesh.h"
#include "xylem/runtime/types.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

class GroupMesh {
 public:
  /// The arguments outlive this object.
  GroupMesh(Context& context, const GroupSpec& spec, Plans& plans)
      : context_(context), spec_(spec), plans_(plans) {}
  GroupMesh(const GroupMesh&) = delete;
  GroupMesh& operator=(const GroupMesh&) = delete;
  /// In a forked child, keeps the mesh until the process exits, since the child must not call the
  /// driver.
  ~GroupMesh();

  /// See Communicator::bind(). Collective; `submit` submits calls to the group.
  Result<Binding> bind(const Memory& device, const Submit& submit);
  /// Makes the binding `same_memory`, if GroupSpec::has_same_memory is set. Call this before the
  /// first call of the group.
  void assume_devices(Token token);
  Binding binding() const noexcept { return binding_.load(std::memory_order_acquire); }
  /// What the ranks must agree on about a call. If they do not, their calls do not match.
  Agreement agreement_on(const Call& call) const;
  /// Fails if `stream` does not belong to the device that is bound.
  Status check(const Stream& stream) const;
  /// Enqueues a call on its stream, and starts its operation. If the call cannot be enqueued, ends
  /// the operation, and releases the engine's reference to it.
  void start(Operation& operation, Result<std::shared_ptr<Plan>> plan);
  /// Whether this mesh exchanges messages with other ranks.
  bool has_messages() const noexcept { return exists() && mesh_->may_stage(); }
  bool has_posts() const noexcept { return mesh_ != nullptr && mesh_->has_posts(); }
  /// The messages of the mesh for other ranks, which the caller must send.
  std::vector<execution::MeshPost> take_posts(Token /*token*/) { return mesh_->take_posts(); }
  /// Handles a message that rank `from` has sent, on the thread for work in the background, which
  /// then calls `send`. There may be further messages to send.
  void on_message(Token token,
                  std::uint32_t from,
                  const execution::MeshMessage& message,
                  std::function<void()> send);
  /// Call this before the group is destroyed. If the streams of this rank have completed their
  /// calls on the mesh, waits until the operations of these calls have ended, too, which depends on
  /// other ranks: a user who has synchronized the streams expects that no call is pending.
  /// Otherwise returns at once. `pending` returns how many operations of the group have not ended.
  void drain(const std::function<std::uint32_t(Token)>& pending);
  /// Stops the mesh, and releases the streams that wait in calls of this group.
  void stop(Token token);

 private:
  bool exists() const noexcept { return binding() == Binding::mesh; }
  bool runs(const Call& call) const;
  /// What bind() has agreed on with the other ranks.
  struct Joined {
    Binding binding = Binding::none;
    std::shared_ptr<execution::Mesh> mesh;  ///< Null if there is no mesh.
    Status why;  ///< Why this rank cannot be in a mesh; OK if only other ranks cannot.
  };
  Result<Joined> join(const Memory& device, const Submit& submit) const;
  void set(const Memory& device, Joined& joined);
  Result<std::unique_ptr<execution::Mesh>> make_end(execution::Compute& device) const;
  bool are_on_one_host() const;
  Status enqueue(Operation& operation);
  Result<execution::Enqueued> enqueue_when_possible(const Operation& operation) const;

  Context& context_;
  const GroupSpec& spec_;
  Plans& plans_;
  // Once binding_ is Binding::mesh, these do not change:
  std::shared_ptr<execution::Mesh> mesh_;
  Memory device_;
  std::atomic<Binding> binding_{Binding::none};  ///< With Binding::mesh, the members above are set.
  /// What on_message() does with messages that have arrived before the mesh was set.
  std::vector<std::function<void(Token)>> early_;
  bool is_stopped_ = false;  ///< Only the token holder accesses it.
  Mutex order_;  ///< Held while a call is enqueued and started: numbers follow stream order.
};

}  // namespace xylem::runtime
