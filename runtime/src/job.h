// SPDX-License-Identifier: Apache-2.0
//
// Job: one rank's membership in a job; Runtime is the user's handle of it. It starts, keeps and
// ends what its communicators share (Context), watches over them (Watch), and owns the world
// communicator.
//
//   starting ──► running ──► closing ──► closed
//
// Whoever holds the progress token turns the job: takes what others have left in the inbox,
// advances the transports and the engine, and now and then does what the clock makes due.
#pragma once

#include "bootstrap/control_plane.h"
#include "calls/operation.h"
#include "config.h"
#include "context.h"
#include "failure/watch.h"
#include "groups/group.h"
#include "live_jobs.h"
#include "progress/progress.h"
#include "wires/compute_devices.h"
#include "wires/wires.h"
#include "xylem/execution/engine.h"
#include "xylem/runtime/options.h"
#include "xylem/runtime/path_info.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace xylem::runtime {

/// The parts that a job is made of; tests bring their own.
struct JobParts {
  LoadedConfig loaded;
  Placement placement;
  PeerFacts facts;               ///< own_facts(), except in tests.
  std::shared_ptr<Store> store;  ///< Kept until all ranks have met.
  std::unique_ptr<ControlPlane> control;
  WireMaker wires;
  Logger logger;
  std::vector<ComputeDevice> devices{};  ///< Devices that are there from the start; in tests.
  ComputeDeviceMaker make_device{};      ///< Makes other devices when their memory is first used.
};

class Job final : public std::enable_shared_from_this<Job>,
                  public Leaver,
                  private execution::EngineListener,
                  private WiresListener,
                  private Progress::Client {
 public:
  /// Starts a job; see Runtime::create().
  static Result<std::shared_ptr<Job>> start(const Options& options);
  static Result<std::shared_ptr<Job>> start(JobParts parts, Deadline deadline);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() override;

  // Any thread may call these functions:
  const Context& context() const noexcept { return context_; }
  std::shared_ptr<Group> world() const noexcept { return world_; }
  std::vector<PathInfo> paths();
  bool is_without(std::uint32_t world_rank);
  Result<Seat> take_seat() {
    return Group::take_seat(std::shared_ptr<Context>(shared_from_this(), &context_));
  }
  Status shutdown(bool force);
  void leave_at_exit(Deadline limit) noexcept override;

 private:
  Job(JobParts parts, GivenSchedules given);
  Status open(const PeerFacts& facts, const WireMaker& make, Deadline deadline);
  Status meet_world(Deadline deadline);
  std::uint32_t rank() const noexcept { return context_.rank(); }
  std::uint32_t size() const noexcept { return context_.size(); }

  void handle_event(ControlEvent& event);
  void handle_loss(std::uint32_t world_rank, std::string_view how);
  void handle_unmet(std::uint32_t world_rank, const Status& why);
  void suspect_all(std::uint32_t world_rank, const Status& why);
  void tick();
  /// The number of operations that have been submitted and not ended.
  std::uint32_t pending();
  void abort_all();
  Status was_interrupted();
  bool owes_calls();
  Status hand_over(Deadline patience);
  std::chrono::nanoseconds hand_over_limit() const noexcept;
  bool is_device_busy();
  void close_groups();
  void release_streams();

  void on_ended(Execution& execution, Status outcome) override;
  void on_wire_error(Execution& execution, std::uint32_t peer, Code code) override;
  void on_compute_error(Execution& execution, const Status& why) override;
  void on_copied(Execution& execution) override;
  void on_late_gate(Execution& execution, const execution::OnDevice::Copy& copy) override;
  void on_body(Message& message) override;
  void on_link_lost(std::uint32_t world_rank, const Status& why) override;
  unsigned turn() override;
  bool arm(std::vector<pollfd>& descriptors) override;
  bool waits_for_device() override;
  void set_patient(bool is_patient) override;
  void show_computing(bool computes) override;
  bool do_peers_compute() override;
  void on_release() override;

  // Members are in order of creation and destroyed in reverse.
  std::shared_ptr<Store> store_;  ///< Null after the start is over.
  Context context_;
  Watch watch_{context_};
  std::shared_ptr<Group> world_;  ///< Keeps the job alive until shutdown() drops it.
  bool is_open_ = false;          ///< True when the start is over.
  // For the token holder:
  bool is_patient_ = false;           ///< See Progress::Client::set_patient().
  std::uint32_t turns_in_a_row_ = 0;  ///< Patient turns since peers were woken last.
  std::mutex shutdown_mutex_;
  std::atomic<std::thread::id> ender_;  ///< The thread that has locked it in shutdown().
};

}  // namespace xylem::runtime
