// SPDX-License-Identifier: Apache-2.0
//
// Plans: how a communicator carries out its collectives. The thread that makes the call also makes
// the plan, without the progress token, since choosing and compiling take long if there are many
// ranks. The most recently used plans are cached.
#pragma once

#include "calls/calls.h"
#include "calls/given_schedules.h"
#include "failure/situation.h"
#include "progress/token.h"
#include "wires/compute_devices.h"
#include "xylem/base/log.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/staging.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/program.h"
#include "xylem/execution/stream_program.h"
#include "xylem/runtime/plan_info.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// How calls with the same arguments, except for their addresses, are carried out.
struct Plan : std::enable_shared_from_this<Plan> {
  /// What distinguishes programs of calls with the same arguments. Except for `is_on_mesh`, it may
  /// differ between the ranks of one call.
  struct Variant {
    bool is_on_device = false;  ///< The buffers are in the memory of a device, which computes.
    /// The input is copied to scratch first, since it is scaled before it is used, or since the
    /// call overwrites it before all of it has been used.
    bool stages_input = false;
    bool is_on_mesh = false;  ///< Call::on_mesh

    friend bool operator==(const Variant&, const Variant&) = default;
  };

  CallRecord record;  ///< The arguments and their fingerprint. The number of the call is not set.
  Variant variant;
  /// A call whose arguments match these can use this plan without any other check. Empty if the
  /// arguments without addresses do not determine the variant.
  std::optional<KnownArguments> arguments;
  std::shared_ptr<const execution::Program> program;
  /// For a call on a mesh: what is enqueued on the stream. `program` is then a barrier. It shows
  /// whether the ranks agree about the call, and when the call has ended on all of them.
  std::shared_ptr<const execution::StreamProgram> stream_program;

  // For the token holder only:
  /// True if the links to all peers of the program are known.
  bool is_connected = false;
  /// Set if the program can run within the call, before an operation is made.
  std::optional<execution::Exchange> exchange;
};

/// The plans of one communicator.
///
/// The list of plans changes only under both the progress token and the mutex, so the token holder
/// reads it without the mutex.
class Plans {
 public:
  /// What plans depend on besides the call. It is the same on all ranks, except for `rank` and the
  /// last three members. What it points to outlives the plans.
  struct Site {
    std::uint32_t rank = 0, size = 1;
    std::uint64_t slice_bytes = 0;
    std::uint32_t window = 1;
    std::string algorithm;  ///< XYLEM_ALGORITHM
    const GivenSchedules* given = nullptr;
    /// What the wire to each rank is able to do.
    std::vector<transport::Capabilities> wires;
    const ComputeDevices* devices = nullptr;
    std::vector<transport::Tag> tags;  ///< GroupSpec::tags().
    std::string label;                 ///< GroupSpec::label(), for the log.
  };

  /// The logger must outlive this object.
  Plans(Site site, collectives::CostModel model, const Logger& logger);
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  ~Plans() = default;

  /// What plans for calls on a mesh depend on; the same on all ranks.
  struct MeshSite {
    std::uint64_t scratch_bytes = 0;  ///< Of each rank.
    bool is_direct = false;           ///< Mesh::is_direct()
    collectives::CostModel model;
  };

  /// Sets the cost model and drops all plans, since they depend on the model. Call this only while
  /// no call is being made.
  void set_model(Token token, collectives::CostModel model);
  collectives::CostModel model() const;
  /// Call this when the group has a mesh, before the first call on it.
  void set_mesh(Token token, MeshSite site);
  /// Whether calls of this shape may run on the mesh. They may not if the user has chosen an
  /// algorithm or a schedule for them that the mesh cannot run. The result is the same on all
  /// ranks. Any thread may call this after set_mesh().
  bool may_use_mesh(const collectives::Shape& shape) const;

  // Any thread may call these functions:
  Result<PlanInfo> explain(const collectives::Shape& shape, std::uint64_t count, DataType type);
  /// The plan for a checked call: a cached plan if there is one, otherwise a new plan.
  Result<std::shared_ptr<Plan>> plan_for(const Call& call);

  /// Looks for a plan for these arguments among the few plans that were used last. Null if none is
  /// found.
  Plan* find(Token token, const EvenArguments& arguments) noexcept;
  /// Moves a plan that is being used to the front of the cache; adds it if it is new. Plans of
  /// uneven calls are not cached.
  void note_use(Token token, const std::shared_ptr<Plan>& plan);

 private:
  bool is_latest(Token token, const std::shared_ptr<Plan>& plan) const noexcept;
  void drop_evicted() XYLEM_LOCKING(locks_excluded(mutex_));
  std::shared_ptr<Plan> kept_for(const Call& call, Plan::Variant variant)
      XYLEM_LOCKING(locks_excluded(mutex_));
  Result<collectives::Choice> choose(const collectives::Shape& shape, std::uint64_t bytes)
      XYLEM_LOCKING(locks_excluded(choosing_));
  /// Which data of a call must be copied to scratch before it is sent or used.
  Result<collectives::Staging> staging_for(const Call& call, Plan::Variant variant) const;
  /// This rank's schedule for a call: that of the user's file or, if there is none, that of the
  /// fastest planner.
  Result<collectives::Schedule> schedule_for(const Call& call);
  Result<std::shared_ptr<const execution::Program>> compile_for(const Call& call,
                                                                Plan::Variant variant);
  Result<collectives::Choice> choose_for_mesh(const collectives::Shape& shape,
                                              std::uint64_t bytes,
                                              bool is_scaled)
      XYLEM_LOCKING(requires_capability(choosing_));
  Result<std::shared_ptr<const execution::StreamProgram>> compile_for_mesh(const Call& call);

  const Site site_;
  const Logger& logger_;
  mutable Mutex choosing_;
  collectives::Chooser chooser_ XYLEM_LOCKING(guarded_by(choosing_));
  /// Set if there is a mesh.
  std::optional<collectives::Chooser> mesh_chooser_ XYLEM_LOCKING(guarded_by(choosing_));
  std::uint64_t mesh_scratch_bytes_ XYLEM_LOCKING(guarded_by(choosing_)) = 0;
  bool is_mesh_direct_ = false;  ///< Set before there are calls on the mesh.
  Mutex mutex_;
  /// The most recently used one comes first.
  std::list<std::shared_ptr<Plan>> plans_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Plans that have left the cache. A thread without the token frees them, since that takes long,
  /// too. So the token does not protect this list.
  std::list<std::shared_ptr<Plan>> evicted_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
