// SPDX-License-Identifier: Apache-2.0
//
// Job: one rank's membership in a job; Runtime is the user's handle to a Job. A Job creates and
// ends the state that its communicators share (Context), supervises the communicators (Watch), and
// owns the world communicator.
//
//   starting ──► running ──► closing ──► closed
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "context.h"
#include "failure/control_events.h"
#include "failure/watch.h"
#include "groups/group.h"
#include "groups/seats.h"
#include "live_jobs.h"
#include "progress/progress.h"
#include "wires/compute_devices.h"
#include "wires/wires.h"
#include "xylem/base/mutex.h"
#include "xylem/collectives/cost_model.h"
#include "xylem/execution/engine.h"
#include "xylem/runtime/counters.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/path_info.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace xylem::runtime {

/// The parts from which a Job is constructed; tests pass their own parts.
struct JobParts {
  LoadedConfig loaded;
  Placement placement;
  PeerFacts facts;               ///< own_facts(), except in tests.
  std::shared_ptr<Store> store;  ///< Kept until all ranks have joined.
  std::unique_ptr<ControlPlane> control;
  WireKinds wires;
  Logger logger;
  std::vector<ComputeDevice> devices{};  ///< Only in tests: devices that exist from the start.
  ComputeDeviceMaker make_device{};      ///< Makes other devices when their memory is first used.
};

class Job final : public std::enable_shared_from_this<Job>, public Leaver {
 public:
  /// Starts a job; see Runtime::create().
  static Result<std::shared_ptr<Job>> start(const Options& options);
  static Result<std::shared_ptr<Job>> start(JobParts parts, Deadline deadline);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  // Any thread may call these functions:
  const Context& context() const noexcept { return context_; }
  std::shared_ptr<Group> world() const noexcept { return world_; }
  std::vector<PathInfo> paths();
  Counters counters();
  bool is_without(std::uint32_t world_rank);
  Result<Seat> take_seat() {
    return Seats::take(std::shared_ptr<Context>(shared_from_this(), &context_));
  }
  Status shutdown(bool force);
  void leave_at_exit(Deadline limit) noexcept override;

 private:
  Job(JobParts parts, GivenSchedules given);
  Status open(const PeerFacts& facts, const WireKinds& wires, Deadline deadline);
  void list_sources();
  Status form_world(Deadline deadline);
  std::uint32_t rank() const noexcept { return context_.rank(); }
  std::uint32_t size() const noexcept { return context_.size(); }

  /// The number of operations that have been submitted and not ended.
  std::uint32_t pending();
  void abort_all();
  Status was_interrupted();
  bool has_calls_needed_by_peers(Token token);
  Status flush_sends(Deadline patience);
  std::chrono::nanoseconds flush_limit() const noexcept;
  void close_groups();
  void release_streams();

  // Members are in order of creation and destroyed in reverse.
  std::shared_ptr<Store> store_;  ///< Released when all ranks have joined.
  Context context_;
  Watch watch_{context_};
  ControlEvents events_{context_, watch_};
  std::shared_ptr<Group> world_;  ///< Keeps the job alive until shutdown() drops it.
  collectives::CostModel costs_;  ///< Of the world. Not changed after the start.
  bool are_costs_measured_ = false;
  bool is_open_ = false;  ///< True once the start has succeeded.
  Mutex shutdown_mutex_;
  std::atomic<std::thread::id> ender_;  ///< Who runs shutdown(), and so holds the mutex.
};

}  // namespace xylem::runtime
