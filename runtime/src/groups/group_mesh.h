// SPDX-License-Identifier: Apache-2.0
//
// GroupMesh: calls that the devices of a group carry out by themselves. The ranks of a group bind
// their devices; if these reach each other's memory, they form a mesh (execution/mesh.h), and calls
// on streams run there.
//
// Such a call is also an operation of the engine: a barrier, which begins when the stream has
// completed the call. So it fails as other calls do: a disagreement is detected, a rank that does
// not call is named, and time-outs and deaths end the call. When it ends with an error, the mesh is
// stopped, and its streams are released.
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
#include "xylem/execution/mesh.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace xylem::runtime {

class GroupMesh {
 public:
  /// The arguments outlive this object.
  GroupMesh(Context& context, const GroupSpec& spec, Plans& plans)
      : context_(context), spec_(spec), plans_(plans) {}
  GroupMesh(const GroupMesh&) = delete;
  GroupMesh& operator=(const GroupMesh&) = delete;
  /// A forked child must not use the driver, so it never ends the mesh.
  ~GroupMesh();

  /// See Communicator::bind(). Collective; `submit` makes calls of the group.
  Result<bool> bind(const Memory& device, const Submit& submit);
  /// Whether a call runs on the mesh. All ranks decide alike, unless they differ in where their
  /// buffers are or in whether the call has a stream. Then their calls do not match.
  bool runs(const Call& call) const;
  /// Fails if this is not a stream of the device that is bound.
  Status check(const Stream& stream) const;
  /// Enqueues a call on its stream, and starts its operation. If the call cannot be enqueued, ends
  /// the operation, and releases the engine's reference to it.
  void start(Operation& operation, Result<std::shared_ptr<Plan>> plan);
  /// If the streams of this rank have completed their calls, waits until the operations of these
  /// calls have ended, which depends on other ranks. A user who has synchronized the streams
  /// expects the calls to be complete. `pending` returns how many operations of the group have not
  /// ended.
  void drain(const std::function<std::uint32_t(Token)>& pending);
  /// Stops the mesh, and releases the streams that wait in calls of this group.
  void stop(Token token);

 private:
  bool exists() const noexcept { return exists_.load(std::memory_order_acquire); }
  Status join(const Memory& device,
              const Submit& submit,
              std::shared_ptr<execution::Mesh>& mesh,
              double& read_GBps);
  Result<std::unique_ptr<execution::Mesh>> make_end(const Memory& device) const;
  bool are_on_one_host() const;
  Status enqueue(Operation& operation);
  Status await_stream(Operation& operation);

  Context& context_;
  const GroupSpec& spec_;
  Plans& plans_;
  // Set once, by bind():
  std::shared_ptr<execution::Mesh> mesh_;
  Memory device_;
  std::atomic<bool> exists_{false};  ///< True when both are set.
  bool is_stopped_ = false;          ///< For the token holder.
  Mutex order_;  ///< Calls on the mesh get their numbers in the order of the streams.
};

}  // namespace xylem::runtime
