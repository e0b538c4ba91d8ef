// SPDX-License-Identifier: Apache-2.0
//
// Plans: makes and caches the plans for the collectives of a communicator. The thread that makes a
// call also makes its plan, without the progress token, since choosing and compiling take long for
// many ranks. The cache holds the most recently used plans.
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

/// How calls with the same arguments are carried out. The addresses of buffers do not count as
/// arguments.
struct Plan : std::enable_shared_from_this<Plan> {
  /// Distinguishes the programs for calls with the same arguments. The ranks of one call may use
  /// different variants, except for `agreement`.
  struct Variant {
    bool is_on_device = false;  ///< The buffers are in device memory, and that device computes.
    /// The input is copied to scratch first: because it must be scaled before it is used, or
    /// because the call overwrites it before all of it has been used.
    bool stages_input = false;
    Agreement agreement = Agreement::none;

    friend bool operator==(const Variant&, const Variant&) = default;
  };

  CallRecord record;  ///< The arguments and their fingerprint. The number of the call is not set.
  Variant variant;
  /// A call whose arguments match these can use this plan without any other check. Empty if the
  /// arguments without addresses do not determine the variant.
  std::optional<KnownArguments> arguments;
  std::shared_ptr<const execution::Program> program;
  /// For a call on a mesh: what is enqueued on the stream. `program` is then a barrier, which
  /// detects disagreements about the call, and ends when the call has ended on all ranks.
  std::shared_ptr<const execution::StreamProgram> stream_program;
  /// True if messages to or from some rank cannot be sent from a device, so that they pass through
  /// scratch on the host.
  bool is_staged = false;

  // For the token holder only:
  /// True if the links to all peers of the program are known.
  bool is_connected = false;
  /// Set if the program may complete within the call, before an operation is made.
  std::optional<execution::Exchange> exchange;
};

/// The plans of one communicator.
///
/// The list of plans changes only while both the progress token and the mutex are held, so the
/// token holder reads it without the mutex.
class Plans {
 public:
  /// The data on which plans depend, apart from the arguments of a call. `rank`, `wires` and
  /// `devices` differ between ranks; the choice of a schedule does not depend on them. The objects
  /// behind the pointers must outlive the plans.
  struct Site {
    std::uint32_t rank = 0, size = 1;
    std::uint64_t slice_bytes = 0;
    /// True if each slice of slice_bytes fits into a slot of the memory that all ranks share.
    bool fits_slots = false;
    /// The slice size of calls for which the ranks have agreed on device memory.
    std::uint64_t device_slice_bytes = 0;
    std::uint32_t window = 1;
    std::string algorithm;  ///< XYLEM_ALGORITHM
    const GivenSchedules* given = nullptr;
    /// The capabilities of the transport to each rank.
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

  /// The data on which plans for calls on a mesh depend. It is the same on all ranks.
  struct MeshSite {
    std::uint64_t staging_bytes = 0;  ///< Mesh::staging_bytes()
    bool may_stage = false;           ///< Mesh::may_stage()
  };

  /// Sets the cost model and drops all plans, since they depend on the model. Call this only while
  /// no call is being made.
  void set_model(Token token, collectives::CostModel model);
  collectives::CostModel model() const;
  /// Call this when all ranks have bound devices to the group, before the first call with an
  /// Agreement, and again when the group gets a mesh, before the first call on the mesh.
  void set_devices(Token token, std::optional<MeshSite> mesh);
  /// Whether calls of this shape may run on the mesh. False if the user has given a schedule for
  /// them, or has chosen an algorithm that the mesh cannot run. The result is the same on all
  /// ranks. Any thread may call this after set_devices() with a mesh.
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
  Result<collectives::Choice> choose(const collectives::Shape& shape,
                                     std::uint64_t bytes,
                                     Agreement agreement) XYLEM_LOCKING(locks_excluded(choosing_));
  void set_device_chooser() XYLEM_LOCKING(requires_capability(choosing_));
  std::optional<MeshSite> mesh_site() const XYLEM_LOCKING(locks_excluded(choosing_));
  bool is_bound() const XYLEM_LOCKING(locks_excluded(choosing_));
  std::uint64_t slice_bytes_of(const Call& call) const noexcept {
    return call.agreement == Agreement::on_devices ? site_.device_slice_bytes : site_.slice_bytes;
  }
  std::uint32_t window_of(const Call& call, Plan::Variant variant, bool is_staged) const noexcept;
  /// Which data of a call must be copied to scratch before it is sent or used.
  Result<collectives::Staging> staging_for(const Call& call, Plan::Variant variant) const;
  /// This rank's schedule for a call.
  struct Planned {
    collectives::Schedule schedule;
    /// True if the planner's programs are proven to be safe with views
    /// (ProgramOptions::has_safe_views).
    bool is_proven = false;
  };
  /// The schedule in the user's file or, if the file has none, that of the planner that choose()
  /// returns.
  Result<Planned> schedule_for(const Call& call);
  /// Sets the program of a plan, and whether it is staged.
  Status compile_for(const Call& call, Plan::Variant variant, Plan& plan);
  Result<std::shared_ptr<const execution::StreamProgram>> compile_for_mesh(
      const Call& call, Plan::Variant variant) const;

  const Site site_;
  const Logger& logger_;
  mutable Mutex choosing_;
  collectives::Chooser chooser_ XYLEM_LOCKING(guarded_by(choosing_));
  /// For calls with Agreement::on_devices.
  std::optional<collectives::Chooser> device_chooser_ XYLEM_LOCKING(guarded_by(choosing_));
  std::optional<MeshSite> mesh_ XYLEM_LOCKING(guarded_by(choosing_));
  Mutex mutex_;
  /// The cached plans, most recently used first.
  std::list<std::shared_ptr<Plan>> plans_ XYLEM_LOCKING(guarded_by(mutex_));
  /// Plans that were removed from the cache. A thread without the token frees them, since freeing
  /// takes long, too. So only the mutex guards this list.
  std::list<std::shared_ptr<Plan>> evicted_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
