// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include "bootstrap/interface.h"
#include "measure.h"
#include "xylem/base/hash.h"
#include "xylem/base/keep.h"
#include "xylem/base/mutex.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace xylem::runtime {

using execution::kMaxRanks;
namespace {

using std::chrono::milliseconds;

/// If the outputs of all ranks of a machine have fewer bytes than this together, they and the
/// inputs fit into its caches. Outputs of this size or more are written with non-temporal stores.
/// Measured with a third-level cache of 32 MiB (docs/benchmarks.md).
constexpr std::uint64_t kCachedOutputs = 16 << 20;
constexpr milliseconds kGoodbye{1000};
/// How long, at most, a job that ends waits until streams have left the calls of failed
/// communicators.
constexpr milliseconds kStreams{5000};
/// How long, at most, a rank that leaves waits until its peers have accepted the data sent to them.
constexpr milliseconds kHandOver{60'000};
/// How long, at most, a rank whose application has ended continues calls for which the application
/// did not wait.
constexpr milliseconds kLastCalls{5000};
/// How long, at most, a thread that ends the runtime waits for the token.
constexpr milliseconds kToken{5000};

/// While this object exists, `thread` is the id of the thread that ends the runtime.
class Ending {
 public:
  explicit Ending(std::atomic<std::thread::id>& thread) : thread_(thread) {
    thread_ = std::this_thread::get_id();
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() { thread_ = std::thread::id(); }

 private:
  std::atomic<std::thread::id>& thread_;
};

}  // namespace

Result<std::shared_ptr<Job>> Job::start(const Options& options) {
  XYLEM_TRY(LiveJobs::of_process().check());
  const Environment environment = process_environment();
  JobParts parts;
  XYLEM_TRY(parts.loaded, load_config(environment, options));
  const Config& config = parts.loaded.config;
  const Deadline deadline = Deadline::after(config.start_timeout);
  XYLEM_TRY(parts.placement, detect_placement(config, environment));
  XYLEM_TRY(parts.logger, Logger::open(config.log, {host_name(), parts.placement.rank, ""}));
  parts.facts = own_facts(parts.loaded, parts.logger);
  XYLEM_TRY(parts.store, open_store(parts.placement, config, environment, options.store,
                                    parts.logger, deadline));
  XYLEM_TRY(parts.control,
            ControlPlane::join(parts.placement, *parts.store, config, parts.logger, deadline));
  parts.facts.ports = ports_of(parts.control->interfaces());
  parts.make_device = make_device_of_machine;
  parts.wires = configured_wires(config, parts.logger);
  return start(std::move(parts), deadline);
}

Result<std::shared_ptr<Job>> Job::start(JobParts parts, Deadline deadline) {
  XYLEM_TRY(auto given, GivenSchedules::load(parts.loaded.config, deadline));
  const WireKinds wires = parts.wires;
  PeerFacts facts = parts.facts;
  // Either all ranks must measure or none, so the ranks compare this setting when they connect.
  const bool is_measured = parts.loaded.config.tuning != "off";
  facts.settings += is_measured ? "another XYLEM_TUNING\n" : "XYLEM_TUNING=off\n";
  facts.settings += given.agreed();
  facts.settings +=
      parts.loaded.config.device ? "Options::device is set\n" : "Options::device is not set\n";
  facts.settings += parts.loaded.config.has_same_memory ? "Options::has_same_memory is true\n"
                                                        : "Options::has_same_memory is false\n";
  const auto end = [](Job* job) {
    // In a forked child nothing is destroyed, since the job's thread and connections belong to the
    // parent.
    if (!job->context_.process.is_forked()) const std::unique_ptr<Job> ends(job);
  };
  std::shared_ptr<Job> job(new Job(std::move(parts), std::move(given)), end);
  if (Status opened = job->open(facts, wires, deadline); !opened) {
    (void)job->shutdown(true);
    return opened;
  }
  LiveJobs::of_process().add(job);
  return job;
}

Job::Job(JobParts parts, GivenSchedules given)
    : store_(std::move(parts.store)),
      context_(std::move(parts.loaded),
               std::move(parts.placement),
               std::move(parts.logger),
               std::move(parts.devices),
               std::move(parts.make_device),
               std::move(given),
               std::move(parts.control)) {}

Status Job::open(const PeerFacts& facts, const WireKinds& wires, Deadline deadline) {
  if (size() > kMaxRanks) {
    return failure(Code::unsupported,
                   fmt::format("{} ranks; tags tell apart at most {}", size(), kMaxRanks));
  }
  const Config& config = context_.config();
  XYLEM_TRY(context_.wires,
            Wires::connect(*context_.control, facts, wires, wire_options(config, &context_.devices),
                           events_, context_.logger, deadline));
  list_sources();
  const Hosts& hosts = context_.wires->hosts();
  const std::uint32_t beside = hosts.machine_size();
  const WaitPolicy policy =
      WaitPolicy::make(config.wait, hosts.cores(), beside, hosts.has_core_for_each());
  context_.progress.open(policy, *context_.wires);
  context_.progress.with_token([&](Token token) {
    Engine& engine = context_.scheduler.engine(token);
    if (policy.spin.count() > 0) {
      engine.set_poll_budget(PollBudget::spinning());
    } else if (policy.yield.count() > 0) {
      engine.set_poll_budget(PollBudget::yielding());
    }
    engine.set_non_temporal_from(kCachedOutputs / beside);
  });
  XYLEM_TRY(context_.thread.start(*context_.control, events_, config.progress_thread));
  XYLEM_TRY(form_world(deadline));
  // All ranks have joined, so no rank reads the store from now on, and rank 0 need not serve it.
  store_.reset();
  is_open_ = true;
  return {};
}

/// Lists the sources that the token's holder drives, in the order in which a turn or a tick calls
/// them. Control events are handled before the Watch looks for the causes of stalls, since they may
/// contain the cause. Operations that other threads have submitted are launched after the wires
/// have made progress.
void Job::list_sources() {
  context_.registry.open(*context_.wires);
  context_.progress.with_token([&](Token token) {
    WorkSources& sources = context_.sources;
    sources.add(events_);
    // HeaderPool reads headers directly in the shared memory into which peers write them. This must
    // happen before the wires copy them out of that memory.
    sources.add(context_.headers.get(token));
    sources.add(*context_.wires);
    // The scheduler handles what the wires have completed.
    sources.add(context_.scheduler);
    sources.add(context_.stopped_meshes);
    sources.add(context_.registry);
    sources.add(watch_);
  });
}

/// Makes the world's group, and measures the links with it.
Status Job::form_world(Deadline deadline) {
  const Config& config = context_.config();
  GroupSpec spec;
  spec.uid = hash_text(context_.placement.job);
  spec.rank = rank();
  spec.has_same_memory = config.has_same_memory;
  for (std::uint32_t other = 0; other < size(); ++other) spec.world_ranks.push_back(other);
  spec.slots.assign(size(), context_.registry.claim_slot().value_or(0));
  spec.timeout = config.timeout;
  Tuning tuning = default_tuning(config, context_.wires->hosts());
  context_.pull_from(config.pull_from.value_or(kNeverPull).value);
  world_ = Group::make(std::shared_ptr<Context>(shared_from_this(), &context_), watch_,
                       std::move(spec), tuning.model);
  context_.progress.with_token(
      [&](Token token) { world_->control(token).history().begin_start(); });
  XYLEM_TRY(tuning, measure(context_, *world_, std::move(tuning), deadline));
  const Bytes measured{tuning.pull_from.value_or(kNeverPull.value)};
  context_.pull_from(config.pull_from.value_or(measured).value);
  costs_ = tuning.model;
  are_costs_measured_ = config.tuning != "off";
  context_.progress.with_token(
      [&](Token token) { world_->plans().set_model(token, std::move(tuning.model)); });
  if (config.device) {
    XYLEM_TRY(world_->bind(*config.device));
  }
  context_.progress.with_token(
      [&](Token token) { world_->control(token).history().begin_user_calls(); });
  return {};
}

Job::~Job() {
  context_.background.stop();
  context_.thread.stop();
}

// ---- Queries of the user, and shutdown ----

std::vector<PathInfo> Job::paths() {
  if (!context_.process.allows()) return {};
  return context_.progress.with_token([this](Token /*token*/) {
    std::vector<PathInfo> paths;
    paths.reserve(size());
    for (std::uint32_t other = 0; other < size(); ++other) {
      PathInfo& path = paths.emplace_back(context_.wires->path(other));
      path.is_within_host = costs_.host[rank()] == costs_.host[other];
      if (other == rank()) continue;
      const auto cost = costs_.between(rank(), other);
      path.latency_us = cost.alpha_us;
      path.bandwidth_GBps = cost.bandwidth_GBps;
      path.is_measured = are_costs_measured_ && (path.is_within_host || !costs_.network.empty());
    }
    return paths;
  });
}

Counters Job::counters() {
  if (!context_.process.allows()) return {};
  return context_.progress.with_token([this](Token token) {
    const transport::Traffic sent = context_.wires->traffic(token);
    const TurnCounts turns = context_.sources.turns(token);
    const auto enqueued = context_.scheduler.engine(token).enqueued_pieces();
    const execution::DeviceUse devices = context_.devices.device_use();
    return Counters{.messages = sent.messages,
                    .bytes = sent.bytes,
                    .announced = sent.announced,
                    .turns = turns.turns,
                    .idle_turns = turns.idle,
                    .pieces = enqueued.pieces,
                    .staged_bytes = sent.staged_bytes + enqueued.staged_bytes,
                    .mesh_copied_bytes = devices.mesh_copied_bytes,
                    .driver_calls = devices.driver_calls,
                    .driver_time = devices.driver_time};
  });
}

bool Job::is_without(std::uint32_t world_rank) {
  if (!context_.process.allows()) return false;
  return context_.progress.with_token([&](Token token) {
    const FailureDetector& failures = context_.failures;
    return failures.has_left(token, world_rank) || !failures.lost(token, world_rank).is_ok();
  });
}

void Job::abort_all() {
  const auto groups = context_.registry.groups();
  context_.progress.with_token([&](Token token) {
    context_.scheduler.launch_submitted(token);
    for (const auto& group : groups) {
      GroupControl& control = group->control(token);
      if (control.pending() == 0) continue;
      control.announce(Code::cancelled, rank(),
                       fmt::format("rank {} ended its runtime with operations pending", rank()));
    }
  });
  const Deadline patience = Deadline::after(Watch::kQuarantine + milliseconds(500));
  while (context_.scheduler.pending() > 0 && !patience.passed()) context_.progress.poke();
  const bool is_device_busy = context_.progress.with_token([&](Token token) {
    return context_.scheduler.needs_polling(token) || context_.wires->needs_polling(token);
  });
  if (!is_device_busy) return;
  context_.logger.warn(
      "a device has not finished its work on aborted operations; their buffers, and memory of "
      "Xylem's own, may be written to until the process ends");
  keep_until_exit(shared_from_this());
}

/// Waits until all data that this rank has sent has left this process. The Works of these sends
/// have ended, but messages may still wait for buffer space at the peers. A peer that has left
/// reads nothing, so flush_sends() does not wait for it. Messages that arrive here meanwhile are
/// dropped, so that two ranks that leave at the same time do not block each other.
Status Job::flush_sends(Deadline patience) {
  std::uint32_t waits_for = 0;
  const auto is_gone = [&](Token token) {
    context_.progress.turn(token);
    context_.wires->discard(token, 0, 0);
    for (; waits_for < size(); ++waits_for) {
      if (context_.failures.has_left(token, waits_for)) continue;
      if (context_.headers.get(token).is_sending_to(waits_for)) return false;
      if (!context_.wires->flush(token, waits_for)) return false;
    }
    return true;
  };
  while (!context_.progress.with_token(is_gone)) {
    if (patience.passed()) {
      return failure(Code::timed_out,
                     fmt::format("rank {} left before rank {} had taken all that was sent to it; "
                                 "the rest is lost",
                                 rank(), waits_for),
                     waits_for);
    }
    std::this_thread::yield();
  }
  return {};
}

std::chrono::nanoseconds Job::flush_limit() const noexcept {
  return std::min<std::chrono::nanoseconds>(kHandOver, context_.config().timeout);
}

/// True if a call is in progress here that other ranks may be unable to complete without this rank.
/// A receive is not such a call, nor is a message of this rank to itself. Makes a turn first.
bool Job::has_calls_needed_by_peers(Token token) {
  context_.progress.turn(token);
  for (Execution* execution = context_.scheduler.engine(token).active(); execution != nullptr;
       execution = execution->active_next) {
    const Operation& operation = *as_operation(execution);
    const GroupSpec& group = group_of(operation).spec();
    const bool is_alone = group.size() == 1 || operation.call.peer == group.rank;
    if (operation.call.kind != CallKind::recv && !is_alone && operation.health) return true;
  }
  return false;
}

/// Closes all groups, including those whose communicators the user still holds: their posted
/// receives must not outlive the wires.
void Job::close_groups() {
  const Deadline patience = Deadline::after(kGoodbye);
  const auto groups = context_.registry.groups();
  context_.progress.with_token([&](Token token) {
    for (const auto& group : groups) group->leave(token);
    while (context_.headers.get(token).receiving() > 0 && !patience.passed()) {
      context_.progress.turn(token);
    }
  });
}

/// Releases streams that wait in calls of failed groups. The token is released between the turns,
/// since a stream may first have to complete other work of the user.
void Job::release_streams() {
  const Deadline patience = Deadline::after(kStreams);
  const auto are_waiting = [&](Token token) {
    context_.stopped_meshes.turn(token);
    return context_.stopped_meshes.needs_polling(token);
  };
  while (context_.progress.with_token(are_waiting)) {
    if (patience.passed()) {
      context_.logger.warn(
          "streams still have calls of communicators that have failed; they may "
          "wait for ever");
      return;
    }
    std::this_thread::yield();
  }
}

std::uint32_t Job::pending() {
  if (context_.wires == nullptr) return 0;
  context_.progress.with_token([&](Token token) { context_.scheduler.launch_submitted(token); });
  return context_.scheduler.pending();
}

/// Keeps the runtime until the process ends, since it cannot be shut down.
Status Job::was_interrupted() {
  keep_until_exit(shared_from_this());
  return failure(Code::busy,
                 "a thread is within a call that it cannot leave, as after exit() in a signal "
                 "handler; this rank's peers will learn that it was lost");
}

Status Job::shutdown(bool force) {
  if (context_.process.is_forked()) return context_.process.check();
  if (ender_ == std::this_thread::get_id()) return was_interrupted();
  // A second caller blocks here until the first has finished.
  const Lock one_at_a_time(shutdown_mutex_);
  const Ending ending(ender_);
  if (context_.process.is_closed()) return {};
  // If exit() was called in a signal handler, the handler may have interrupted a call of this
  // thread. The interrupted call never continues, and may hold the token.
  if (!context_.progress.acquire_until(Deadline::after(kToken))) return was_interrupted();
  context_.progress.release();
  auto patience = flush_limit();
  if (const auto left = pending(); left > 0) {
    if (!force) {
      return failure(Code::busy,
                     fmt::format("{} operations are pending; wait for them before shutdown", left));
    }
    context_.logger.warn(
        fmt::format("the runtime ends with {} operations pending; they are aborted", left));
    abort_all();
    patience = kGoodbye;
  }
  Status flushed;
  if (context_.wires != nullptr) {
    if (is_open_) flushed = flush_sends(Deadline::after(patience));
    if (!flushed) context_.logger.warn(flushed.message());
    close_groups();
    release_streams();
  }
  context_.background.stop();
  context_.process.close();
  context_.thread.stop();
  context_.registry.close();
  if (context_.control != nullptr) context_.control->leave(Deadline::after(kGoodbye));
  LiveJobs::of_process().remove(*this);
  world_.reset();
  return flushed;
}

/// Like shutdown(), but destroys nothing and calls no callback of the application: the objects that
/// destructors and callbacks use may have been destroyed already.
void Job::leave_at_exit(Deadline limit) noexcept try {
  if (ender_ == std::this_thread::get_id()) return;
  Deadline patience = earlier(limit, Deadline::after(flush_limit()));
  if (!lock_until(shutdown_mutex_, patience)) return;
  const Lock one_at_a_time(shutdown_mutex_, std::adopt_lock);
  if (!context_.process.allows()) return;
  // If a signal handler has interrupted the token's holder and called exit(), the token is never
  // released.
  if (!context_.progress.acquire_until(Deadline::after(kGoodbye))) return;
  context_.process.note_end_of_program();
  context_.progress.release();
  const Deadline last = earlier(patience, Deadline::after(kLastCalls));
  while (context_.progress.with_token(
      [this](Token held) { return has_calls_needed_by_peers(held); })) {
    if (last.passed()) {
      context_.logger.warn("the program has ended with operations pending; they are dropped");
      patience = Deadline::after(kGoodbye);
      break;
    }
    std::this_thread::yield();
  }
  if (const Status flushed = flush_sends(patience); !flushed) {
    context_.logger.warn(flushed.message());
  }
  context_.background.close();
  context_.process.close();
  context_.thread.stop();
  context_.control->leave(Deadline::after(kGoodbye));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  // Memory has run out. The peers will detect that this rank was lost.
}

}  // namespace xylem::runtime
