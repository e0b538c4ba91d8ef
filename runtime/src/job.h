// SPDX-License-Identifier: Apache-2.0
//
// Job: one rank's membership in a job; what a Runtime stands for. It owns, in order of creation:
// the control plane, the wires, the engine with its operations, the registry of groups, and one
// keeper thread.
//
//   starting ──► running ──► closing ──► closed
//
// The keeper serves the control plane and, when work is pending that nobody waits for, drives
// progress. Everything marked «token» is touched only by the holder of the progress token.
#pragma once

#include "bootstrap/control_plane.h"
#include "config.h"
#include "group.h"
#include "operation.h"
#include "point_to_point.h"
#include "progress.h"
#include "registry.h"
#include "watch.h"
#include "wires.h"
#include "xylem/base/unique_fd.h"
#include "xylem/execution/engine.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace xylem::runtime {

/// What a job is made of; tests bring their own.
struct JobParts {
  LoadedConfig loaded;
  Placement placement;
  PeerFacts facts;               ///< own_facts(), but in tests.
  std::shared_ptr<Store> store;  ///< Kept until all have met.
  std::unique_ptr<ControlPlane> control;
  WireMaker wires;
  Logger logger;
};

class Job final : public std::enable_shared_from_this<Job>,
                  private execution::EngineListener,
                  private ControlListener,
                  private WiresListener,
                  private Progress::Client {
 public:
  /// As Runtime::create().
  static Result<std::shared_ptr<Job>> start(const Options& options);
  static Result<std::shared_ptr<Job>> start(JobParts parts, Deadline deadline);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() override;
  /// The user's handle to a started job.
  static Runtime handle(std::shared_ptr<Job> job) { return Runtime(std::move(job)); }

  // Any thread.
  std::uint32_t rank() const noexcept { return placement_.rank; }
  std::uint32_t size() const noexcept { return placement_.size; }
  const Placement& placement() const noexcept { return placement_; }
  const LoadedConfig& loaded() const noexcept { return loaded_; }
  const Config& config() const noexcept { return loaded_.config; }
  const Logger& logger() const noexcept { return logger_; }
  const Wires& wires() const noexcept { return *wires_; }
  /// As Transport::pull_from(), of what carries messages within the host.
  void pull_from(std::uint64_t bytes);
  std::shared_ptr<Group> world() const noexcept { return world_; }
  Progress& progress() noexcept { return *progress_; }
  OperationPool& operations() noexcept { return operations_; }
  std::vector<PathInfo> paths();
  /// Hands an operation to the engine: at once if nobody drives, else through the queue.
  void submit(Operation& operation);
  /// One more is pending.
  void count_operation() noexcept;
  /// Takes the token for a call that may be over at once. False if somebody else has it, or if
  /// there is something else to be seen to: calls that are over at once move nothing forward.
  bool try_enter() noexcept;
  /// An error in a forked child or after shutdown.
  Status check_process() const noexcept;
  /// In a child nothing of ours may be used, no lock above all.
  bool is_forked() const noexcept { return same_process_ != nullptr && *same_process_ == 0; }
  Status shutdown(bool force);
  /// Ends a group that nobody refers to any more, under the token.
  void bury(std::unique_ptr<Group> group);
  Registry& registry() noexcept { return registry_; }
  ControlPlane& control() noexcept { return *control_; }

  /// Runs `work` as the token holder.
  template <typename Work>
  auto with_token(Work work) {
    progress_->acquire();
    const std::unique_ptr<Progress, ReleaseToken> held(progress_.get());
    return work();
  }

  // Token.
  Engine& engine() noexcept { return engine_; }
  HeaderPool& headers() noexcept { return headers_; }
  Watch& watch() noexcept { return watch_; }
  Result<Link> link(std::uint32_t world_rank) { return wires_->link(world_rank); }
  /// When the rank said goodbye; far in the future if it has not.
  Clock::time_point left_at(std::uint32_t world_rank) const noexcept { return left_[world_rank]; }
  bool has_left(std::uint32_t world_rank) const noexcept {
    return left_[world_rank] != Clock::time_point::max();
  }
  /// From now on the group hears of deaths and verdicts, and of those that came before it.
  void enlist(const std::shared_ptr<Group>& group);
  /// Poisons a group here and on all ranks.
  void announce(Group& group, Code code, std::optional<std::uint32_t> culprit, std::string message);
  /// A wire to `culprit` failed: announces it, unless the control plane tells within a moment that
  /// the rank died, which says more.
  void suspect(Group& group, Status why);
  void on_poisoned(const Group& group);

 private:
  struct Event {
    enum class Kind : std::uint8_t { message, lost, left, met, unmet } kind = Kind::message;
    std::uint32_t rank = 0;
    std::string text;
    std::vector<std::byte> message;
    Encounter encounter{};
    Status why{};
  };

  struct ReleaseToken {
    void operator()(Progress* progress) const noexcept { progress->release(); }
  };

  /// What the keeper remembers from look to look.
  struct Attention {
    std::uint64_t visits = 0;           ///< Of users' threads, at the last look.
    unsigned unattended = 0;            ///< Looks in a row that found work and no visitor,
    unsigned quiet_looks = 0;           ///< and those that found neither.
    std::chrono::milliseconds wait{1};  ///< Before the next look.
  };

  struct Suspicion {
    std::weak_ptr<Group> group;
    Status why;
    Clock::time_point since;
    bool unless_left = false;  ///< The culprit may have said goodbye: that is heard soon.
  };

  explicit Job(JobParts parts);
  Status open(const PeerFacts& facts, const WireMaker& make, Deadline deadline);
  void keep();
  void attend(Attention& attention);
  void post(Event event);
  void handle_events();
  void handle_event(Event& event);
  void handle_loss(const Event& event);
  void handle_unmet(std::uint32_t world_rank, const Status& why);
  void suspect_all(std::uint32_t world_rank, const Status& why);
  void handle_suspicions(Clock::time_point now);
  /// Whether somebody must drive progress: a user who has been told that his message is sent may
  /// not come back for long.
  bool has_work() const noexcept {
    return pending_.load(std::memory_order_acquire) > 0 || headers_.sending() > 0 ||
           registry_.is_draining() || suspects_.load(std::memory_order_relaxed);
  }
  void wake_keeper() noexcept;
  void abort_all();
  Status hand_over(Deadline patience);
  void close_groups();
  void take_submitted();
  /// Hands over the headers that have come or are sent.
  void run_headers();
  void on_unsent(const HeaderSlot& slot);

  void on_ended(Execution& execution, Status outcome) override;
  void on_wire_error(Execution& execution, std::uint32_t peer, Code code) override;
  void on_compute_error(Execution& execution, const Status& why) override;
  void on_body(Message& message) override;
  void on_peer_lost(std::uint32_t rank, std::string_view how) override;
  void on_peer_left(std::uint32_t rank) override;
  void on_message(std::uint32_t origin, std::span<const std::byte> message) override;
  void on_met(Encounter encounter) override;
  void on_unmet(std::uint32_t rank, const Status& why) override;
  void on_link_lost(std::uint32_t world_rank, Code code) override;
  unsigned turn() override;
  bool arm(std::vector<pollfd>& descriptors) override;
  void on_release() override { registry_.empty_graves(); }

  // In order of creation; destroyed in reverse.
  LoadedConfig loaded_;
  Placement placement_;
  Logger logger_;
  std::shared_ptr<Store> store_;  ///< Until the start has come to its end.
  std::unique_ptr<ControlPlane> control_;
  OperationPool operations_;
  HeaderPool headers_;
  Engine engine_{*this};
  Watch watch_{*this};
  std::unique_ptr<Wires> wires_;  ///< Goes before the messages it may still hold.
  std::unique_ptr<Progress> progress_;

  Registry registry_;
  std::shared_ptr<Group> world_;  ///< Lets go of this cycle in shutdown().
  std::vector<Suspicion> suspicions_;
  std::atomic<bool> suspects_{false};  ///< There are suspicions.
  std::vector<Status> lost_;           ///< By rank; OK while it lives.
  std::vector<Clock::time_point> left_;

  std::atomic<Operation*> submitted_{nullptr};  ///< Newest first.
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> events_waiting_{false};
  std::atomic<bool> tick_due_{false};
  std::mutex events_mutex_;
  std::vector<Event> events_;

  const volatile char* same_process_ = nullptr;  ///< One page that a fork wipes.
  bool is_open_ = false;                         ///< The start has come to its end.
  std::mutex shutdown_mutex_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> keeper_dozes_{false};
  UniqueFd keeper_wake_;
  std::thread keeper_;
};

}  // namespace xylem::runtime
