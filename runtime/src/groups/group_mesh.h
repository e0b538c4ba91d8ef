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
#include "groups/mesh_switch.h"
#include "progress/token.h"
#include "xylem/base/log.h"
#include "xylem/base/memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/mesh.h"
#include "xylem/runtime/types.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace xylem::runtime {

/// What each rank sends to the others about its device, and about its end of the mesh, if it has
/// these. Plain bytes, like MeshOpened.
struct MeshOffer {
  std::uint32_t has_device = 0, has_member = 0;
  execution::MeshMember member;
};

/// What each rank sends to the others when it has opened their memory, or has failed to.
struct MeshOpened {
  std::uint64_t is_complete = 0;
  execution::MeshView view{};
};

class GroupMesh {
 public:
  /// What a GroupMesh needs from its group.
  struct Hooks {
    /// Sends a note to a rank of the group (PointToPoint::send_note()).
    std::function<void(Token, std::uint32_t to, std::span<const std::byte>)> send;
    /// From now on, notes of other ranks are passed to on_note().
    std::function<void(Token)> listen;
    /// Whether notes are received even while many messages wait for their receives.
    std::function<void(Token, bool are_urgent)> hasten;
    /// A reference to the group; null if the group is being destroyed. Any thread may call this.
    std::function<std::shared_ptr<void>()> hold;
  };

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
  /// See Communicator::bind_later().
  Status bind_later(const Memory& device);
  /// Call this before any other function.
  void attach(Hooks hooks) { hooks_ = std::move(hooks); }
  Binding binding() const noexcept { return binding_.load(std::memory_order_acquire); }
  /// What the ranks must agree on about a call. If they do not, their calls do not match. Call it
  /// once for each call, in the order of the calls. Blocks if this rank is many calls ahead of the
  /// ranks that have not decided yet whether there is a mesh (bind_later()); fails if this takes
  /// longer than the time limit of calls.
  Result<Agreement> agreement_on(const Call& call);
  /// Fails if `stream` does not belong to the device that is bound.
  Status check(const Stream& stream) const;
  /// Enqueues a call on its stream, and starts its operation. If the call cannot be enqueued, ends
  /// the operation, and releases the engine's reference to it.
  void start(Operation& operation, Result<std::shared_ptr<Plan>> plan);
  /// Sends the messages that the mesh has for other ranks.
  void send_posts(Token token);
  /// Handles a note that rank `from` has sent.
  void on_note(Token token, std::uint32_t from, std::span<const std::byte> bytes);
  /// Call this before the group is destroyed. If the streams of this rank have completed their
  /// calls on the mesh, waits until the operations of these calls have ended, too, which depends on
  /// other ranks: a user who has synchronized the streams expects that no call is pending.
  /// Otherwise returns at once. `pending` returns how many operations of the group have not ended.
  void drain(const std::function<std::uint32_t(Token)>& pending);
  /// Call this when this rank leaves the group.
  void leave() { switch_.decide(MeshSwitch::kNever); }
  /// Stops the mesh, and releases the streams that wait in calls of this group.
  void stop(Token token);

 private:
  bool exists() const noexcept { return binding() == Binding::mesh; }
  /// What bind() or bind_later() has agreed on with the other ranks.
  struct Joined {
    Binding binding = Binding::none;
    std::shared_ptr<execution::Mesh> mesh;  ///< Null if there is no mesh.
    Status why;  ///< Why this rank cannot be in a mesh; OK if only other ranks cannot.
  };
  /// The state of bind_later(), for the token holder.
  struct Later {
    std::vector<std::optional<MeshOffer>> offers;         ///< By rank.
    std::vector<std::optional<MeshOpened>> opened;        ///< By rank.
    std::vector<std::optional<std::uint64_t>> proposals;  ///< By rank.
    Joined joined;
  };

  Result<Joined> join(const Memory& device, const Submit& submit);
  Joined make_end(const Memory& device, MeshOffer& offer) const;
  static MeshOpened open(Joined& joined, const std::vector<MeshOffer>& offers);
  static bool start(Joined& joined, const std::vector<MeshOpened>& opened);
  void set(Token token, const Memory& device, Joined& joined);
  void log_missing(const Joined& joined, LogLevel level) const;
  void handle(Token token, std::uint32_t from, const execution::MeshMessage& message);
  void in_background(std::function<void()> task) const;
  template <typename T>
  void send_to_all(Token token, const T& value);
  void offer_later();
  void open_later(const std::vector<MeshOffer>& offers);
  void on_offer(Token token, std::uint32_t from, const MeshOffer& offer);
  void on_opened(Token token, std::uint32_t from, const MeshOpened& opened);
  void on_proposal(Token token, std::uint32_t from, std::uint64_t proposal);
  void decide(Token token, std::uint64_t first);
  template <typename T>
  bool note(std::vector<std::optional<T>>& list, std::uint32_t from, const T& value);
  Result<bool> is_after_switch();
  bool are_on_one_host() const;
  Status enqueue(Operation& operation);
  Result<execution::Enqueued> enqueue_when_possible(const Operation& operation);

  Context& context_;
  const GroupSpec& spec_;
  Plans& plans_;
  // Once binding_ is Binding::mesh, these do not change:
  std::shared_ptr<execution::Mesh> mesh_;
  Memory device_;
  std::atomic<Binding> binding_{Binding::none};  ///< With Binding::mesh, the members above are set.
  /// Messages that have arrived before the mesh was set.
  std::vector<std::pair<std::uint32_t, execution::MeshMessage>> early_;
  bool is_stopped_ = false;  ///< Only the token holder accesses it.
  Hooks hooks_;
  Later later_;
  Mutex later_mutex_;                  ///< Held by bind_later().
  Memory later_device_{};              ///< Set by the first bind_later().
  std::atomic<bool> is_bound_{false};  ///< bind() has been called.
  MeshSwitch switch_;                  ///< Counts if bind_later() has been called.
  bool counts_as_own_ = false;         ///< In Context::own_meshes.
  Mutex order_;  ///< Held while a call is enqueued and started: numbers follow stream order.
};

}  // namespace xylem::runtime
