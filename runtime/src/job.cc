// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include "measure.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

namespace xylem::runtime {

using execution::kMaxRanks;
namespace {

using std::chrono::milliseconds;

/// How much memory the outputs of a host's ranks may take together to stay in its caches, which
/// also hold the inputs. Measured with a third-level cache of 32 MiB (docs/benchmarks.md).
constexpr std::uint64_t kCachedOutputs = 16 << 20;
constexpr milliseconds kGoodbye{1000};
/// After so many turns in a row, which take about half a millisecond if all move data, a patient
/// thread wakes peers that it has let sleep.
constexpr std::uint32_t kTurnsInARow = 16;
/// How long a job that ends lets streams go on that have calls of failed communicators.
constexpr milliseconds kStreams{5000};
/// How long a rank that leaves waits at most for its peers to take what it has sent.
constexpr milliseconds kHandOver{60'000};
/// How long a rank whose program has ended goes on with calls for which the program did not wait.
constexpr milliseconds kLastCalls{5000};
/// How long a thread that ends the runtime waits until no other one drives it.
constexpr milliseconds kToken{5000};

/// Notes the thread that ends a runtime.
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

/// Keeps a job's memory until the process ends: a device may write to it until then, or a thread
/// has not left a call.
void outlive(std::shared_ptr<Job> job) {
  static std::mutex mutex;
  // Never destroyed, not even when the process ends.
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
  static auto& jobs = *new std::vector<std::shared_ptr<Job>>();
  const std::lock_guard lock(mutex);
  jobs.push_back(std::move(job));
}

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
  parts.make_device = make_device_of_machine;
  parts.wires = configured_wires(config, parts.control->interface(), parts.logger);
  return start(std::move(parts), deadline);
}

Result<std::shared_ptr<Job>> Job::start(JobParts parts, Deadline deadline) {
  XYLEM_TRY(auto given, GivenSchedules::load(parts.loaded.config, deadline));
  const WireMaker make = parts.wires;
  PeerFacts facts = parts.facts;
  // Either all ranks take part in measuring, or none does.
  const bool is_measured = parts.loaded.config.tuning != "off";
  facts.settings += is_measured ? "another XYLEM_TUNING\n" : "XYLEM_TUNING=off\n";
  facts.settings += given.agreed();
  const auto end = [](Job* job) {
    // In a forked child everything belongs to the parent: the thread, and the connections to peers.
    if (!job->context_.process.is_forked()) const std::unique_ptr<Job> ends(job);
  };
  std::shared_ptr<Job> job(new Job(std::move(parts), std::move(given)), end);
  if (Status opened = job->open(facts, make, deadline); !opened) {
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
               std::move(parts.control),
               *this,
               *this) {}

Status Job::open(const PeerFacts& facts, const WireMaker& make, Deadline deadline) {
  if (size() > kMaxRanks) {
    return failure(Code::unsupported,
                   fmt::format("{} ranks; tags tell apart at most {}", size(), kMaxRanks));
  }
  const Config& config = context_.config();
  XYLEM_TRY(context_.wires,
            Wires::connect(*context_.control, facts, make, wire_options(config, &context_.devices),
                           *this, context_.logger, deadline));
  const std::uint32_t local = context_.wires->local_ranks();
  const WaitPolicy policy = WaitPolicy::make(config.wait, context_.wires->local_cores(), local,
                                             context_.wires->has_core_for_each());
  context_.progress.set_policy(policy);
  if (policy.spin.count() > 0) {
    context_.engine.set_patience(Patience::spinning());
  } else if (policy.yield.count() > 0) {
    context_.engine.set_patience(Patience::yielding());
  }
  context_.engine.set_past_cache_from(kCachedOutputs / local);
  XYLEM_TRY(context_.keeper.start(*context_.control, config.progress_thread));
  XYLEM_TRY(meet_world(deadline));
  // All ranks have met, so nobody reads the store any more, and rank 0 need not serve it.
  store_.reset();
  is_open_ = true;
  return {};
}

/// Makes the world's group, and measures the links with it.
Status Job::meet_world(Deadline deadline) {
  const Config& config = context_.config();
  GroupSpec spec;
  spec.uid = hash_text(context_.placement.job);
  spec.rank = rank();
  for (std::uint32_t other = 0; other < size(); ++other) spec.world_ranks.push_back(other);
  spec.slots.assign(size(), context_.registry.claim_slot().value_or(0));
  Tuning tuning = default_tuning(config, context_.wires->host_indices());
  tuning.model.host_cores = context_.wires->host_cores();
  context_.pull_from(config.pull_from.value_or(kNeverPull).value);
  world_ = Group::make(std::shared_ptr<Context>(shared_from_this(), &context_), watch_,
                       std::move(spec), tuning.model);
  world_->begin_start();
  XYLEM_TRY(tuning, measure(context_, *world_, std::move(tuning), deadline));
  const Bytes measured{tuning.pull_from.value_or(kNeverPull.value)};
  context_.pull_from(config.pull_from.value_or(measured).value);
  context_.progress.with_token([&] {
    world_->set_model(std::move(tuning.model));
    world_->begin_user_calls();
  });
  return {};
}

Job::~Job() { context_.keeper.stop(); }

// ---- the token holder's turn ----

unsigned Job::turn() {
  if (is_patient_) context_.wires->hold_wakes(true);
  for (ControlEvent& event : context_.inbox.take_events()) handle_event(event);
  Group::launch_all(context_.inbox);
  unsigned done = context_.headers.look();
  for (const auto& wire : context_.wires->all()) {
    if (wire.transport != nullptr) done += wire.transport->progress();
  }
  context_.headers.hand_over_completed();
  done += context_.engine.run();
  context_.stopped_meshes.release();
  context_.registry.drain(*context_.wires);
  // This comes after the transports, so that messages which have arrived are handled before their
  // sender is reported missing.
  if (context_.inbox.take_tick()) tick();
  context_.registry.empty_graves();
  if (is_patient_ && (done == 0 || ++turns_in_a_row_ == kTurnsInARow)) {
    turns_in_a_row_ = 0;
    context_.wires->hold_wakes(false);
  }
  return done;
}

void Job::show_computing(bool computes) { context_.wires->show_computing(computes); }

bool Job::do_peers_compute() { return context_.wires->do_peers_compute(); }

void Job::set_patient(bool is_patient) {
  is_patient_ = is_patient;
  if (!is_patient) context_.wires->hold_wakes(false);
}

void Job::tick() {
  for (ControlEvent& event : context_.inbox.take_events()) handle_event(event);
  const auto now = Clock::now();
  context_.wires->tick(now);
  watch_.tick(now);
  for (const Suspicion& suspicion : context_.failures.take_confirmed(now)) {
    const Status& why = suspicion.why;
    if (const auto group = suspicion.group.lock()) {
      group->announce(why.code(), why.peer(), std::string(why.message()));
    }
  }
  context_.registry.end_drains(now);
}

bool Job::waits_for_device() {
  return is_device_busy() || context_.stopped_meshes.are_streams_waiting();
}

void Job::on_release() {
  context_.registry.empty_graves();
  context_.keeper.set_device_work(context_.engine.has_pending_work());
}

/// Whether a device has work of a call.
bool Job::is_device_busy() {
  return context_.engine.has_pending_work() ||
         std::ranges::any_of(context_.wires->all(), [](const Wire& wire) {
           return wire.transport != nullptr && wire.transport->waits_for_device();
         });
}

bool Job::arm(std::vector<pollfd>& descriptors) {
  if (context_.inbox.has_work_for_sleeper() || waits_for_device()) return false;
  if (context_.engine.relieve()) return false;
  for (const auto& wire : context_.wires->all()) {
    if (wire.transport == nullptr) continue;
    const auto armed = wire.transport->arm();
    if (!armed || !*armed) return false;
    descriptors.push_back({wire.transport->wake_fd(), POLLIN, 0});
  }
  return true;
}

// ---- what the engine and the wires report ----

void Job::on_ended(Execution& execution, Status outcome) {
  Operation& operation = *as_operation(&execution);
  operation.group->on_ended(operation);
  if (!outcome && operation.enqueued.is_direct) {
    // A peer's device may have begun before the call failed.
    outcome = Error{.code = outcome.code(),
                    .message = std::string(outcome.message()),
                    .peer = outcome.peer(),
                    .holds_buffers = true};
  }
  operation.end(std::move(outcome));
  operation.release();
  context_.progress.announce_ended();
}

void Job::on_wire_error(Execution& execution, std::uint32_t peer, Code code) {
  Operation& operation = *as_operation(&execution);
  Group& group = *operation.group;
  if (peer == collectives::kNone) peer = operation.call.peer;
  // A receive from any source knows its peer only once it has met a message.
  const std::uint32_t culprit =
      peer == collectives::kNone ? operation.source : group.world_rank(peer);
  if (code == Code::mismatch) {
    return group.announce(
        code, culprit,
        fmt::format("rank {} got a message of another size from rank {} than it expects in {}",
                    rank(), culprit, group.name_of_call(operation.sequence)));
  }
  group.suspect(failure(
      code, fmt::format("rank {} lost its connection to rank {} ({})", rank(), culprit, name(code)),
      culprit));
}

void Job::on_compute_error(Execution& execution, const Status& why) {
  const Operation& operation = *as_operation(&execution);
  Group& group = *operation.group;
  group.announce(why.code(), rank(),
                 fmt::format("rank {} cannot go on with {}: {}", rank(),
                             group.name_of_call(operation.sequence), why.message()));
  // A group that has been left announces nothing, so the operation is failed directly as well.
  context_.engine.fail(execution, why);
}

void Job::on_copied(Execution& execution) {
  Operation& operation = *as_operation(&execution);
  operation.group->on_copied(operation);
}

void Job::on_late_gate(Execution& execution, const execution::OnDevice::Copy& copy) {
  Operation& operation = *as_operation(&execution);
  operation.group->on_late_gate(operation, copy);
}

void Job::on_body(Message& message) { operation_of(message).group->on_body(message); }

void Job::on_link_lost(std::uint32_t world_rank, const Status& why) {
  suspect_all(
      world_rank,
      failure(why.code(), fmt::format("rank {} lost its connection to rank {} ({}): {}", rank(),
                                      world_rank, name(why.code()), why.message())));
}

// ---- what the control plane has heard ----

void Job::handle_event(ControlEvent& event) {
  switch (event.kind) {
    case ControlEvent::Kind::message: return watch_.on_message(event.rank, event.message);
    case ControlEvent::Kind::left:
      context_.failures.note_left(event.rank);
      for (const auto& group : context_.registry.groups()) group->note_left(event.rank);
      return context_.wires->give_up_meeting(event.rank);
    case ControlEvent::Kind::lost: return handle_loss(event.rank, event.text);
    case ControlEvent::Kind::met: {
      const Status adopted = context_.wires->adopt(std::move(event.encounter));
      return adopted ? void() : handle_unmet(event.rank, adopted);
    }
    case ControlEvent::Kind::unmet: return handle_unmet(event.rank, event.why);
  }
}

void Job::handle_unmet(std::uint32_t world_rank, const Status& why) {
  suspect_all(world_rank,
              failure(why.code(), fmt::format("rank {} cannot be connected to rank {}: {}", rank(),
                                              world_rank, why.message())));
  context_.wires->give_up_meeting(world_rank);
}

void Job::handle_loss(std::uint32_t world_rank, std::string_view how) {
  if (!context_.failures.lost(world_rank).is_ok()) return;
  const Status why = failure(Code::peer_lost,
                             fmt::format("rank {} on {} was lost: {}", world_rank,
                                         context_.wires->peers()[world_rank].host, how),
                             world_rank);
  context_.failures.note_lost(world_rank, why);
  context_.logger.error(why.message());
  for (const auto& group : context_.registry.groups()) {
    if (group->rank_of(world_rank)) group->poison(why);
  }
  context_.wires->close(world_rank);
}

/// Suspects the rank in all groups, also in those whose calls do not wait for this connection now:
/// what it carried is lost.
void Job::suspect_all(std::uint32_t world_rank, const Status& why) {
  for (const auto& group : context_.registry.groups()) {
    if (!group->rank_of(world_rank)) continue;
    context_.failures.suspect(group, failure(why.code(), std::string(why.message()), world_rank),
                              Suspicion::Leaver::is_excused);
  }
}

// ---- the user's questions, and the end ----

std::vector<PathInfo> Job::paths() {
  if (!context_.process.allows()) return {};
  return context_.progress.with_token([this] {
    std::vector<PathInfo> paths;
    paths.reserve(size());
    for (std::uint32_t other = 0; other < size(); ++other)
      paths.push_back(context_.wires->path(other));
    return paths;
  });
}

bool Job::is_without(std::uint32_t world_rank) {
  if (!context_.process.allows()) return false;
  return context_.progress.with_token([&] {
    return context_.failures.has_left(world_rank) || !context_.failures.lost(world_rank).is_ok();
  });
}

void Job::abort_all() {
  const auto groups = context_.registry.groups();
  context_.progress.with_token([&] {
    Group::launch_all(context_.inbox);
    for (const auto& group : groups) {
      if (group->pending() == 0) continue;
      group->announce(Code::cancelled, rank(),
                      fmt::format("rank {} ended its runtime with operations pending", rank()));
    }
  });
  const Deadline patience = Deadline::after(Watch::kQuarantine + milliseconds(500));
  while (context_.keeper.pending() > 0 && !patience.passed()) context_.progress.poke();
  if (!context_.progress.with_token([&] { return is_device_busy(); })) return;
  context_.logger.warn(
      "a device has not finished its work on aborted operations; their buffers, and memory of "
      "Xylem's own, may be written to until the process ends");
  outlive(shared_from_this());
}

/// Waits until everything that this rank has sent has left it. Its sends have ended, but messages
/// may still wait for room at the peers. A rank that has left reads no more. Messages that still
/// arrive here are dropped, so that two ranks that leave at the same time do not wait for each
/// other.
Status Job::hand_over(Deadline patience) {
  std::uint32_t waits_for = 0;
  const auto is_gone = [&] {
    turn();
    for (const auto& wire : context_.wires->all()) {
      if (wire.transport != nullptr) wire.transport->discard(0, 0);
    }
    for (; waits_for < size(); ++waits_for) {
      if (context_.failures.has_left(waits_for)) continue;
      if (context_.headers.is_sending_to(waits_for) || !context_.wires->flush(waits_for))
        return false;
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

std::chrono::nanoseconds Job::hand_over_limit() const noexcept {
  return std::min<std::chrono::nanoseconds>(kHandOver, context_.config().timeout);
}

/// Whether other ranks may need this one for a call that is under way here. A receive concerns no
/// other rank, nor does a message of this rank to itself.
bool Job::owes_calls() {
  turn();
  for (Execution* execution = context_.engine.active(); execution != nullptr;
       execution = execution->active_next) {
    const Operation& operation = *as_operation(execution);
    const Group& group = *operation.group;
    const bool is_alone = group.size() == 1 || operation.call.peer == group.rank();
    if (operation.call.kind != CallKind::recv && !is_alone && operation.health) return true;
  }
  return false;
}

/// Closes all groups, including those whose communicators the user still holds: their posted
/// receives must not outlive the wires.
void Job::close_groups() {
  for (const auto& group : context_.registry.groups()) group->close();
  const Deadline patience = Deadline::after(kGoodbye);
  context_.progress.with_token([&] {
    while (context_.headers.receiving() > 0 && !patience.passed()) turn();
  });
}

/// Lets streams go on that have calls of groups that have failed. Without the token between the
/// turns: a stream may have to do other work of the user first.
void Job::release_streams() {
  const Deadline patience = Deadline::after(kStreams);
  const auto are_waiting = [&] {
    context_.stopped_meshes.release();
    return context_.stopped_meshes.are_streams_waiting();
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
  context_.progress.with_token([&] { Group::launch_all(context_.inbox); });
  return context_.keeper.pending();
}

/// The runtime cannot end. It lasts until the process has ended.
Status Job::was_interrupted() {
  outlive(shared_from_this());
  return failure(Code::busy,
                 "a thread is within a call that it cannot leave, as after exit() in a signal "
                 "handler; this rank's peers will learn that it was lost");
}

Status Job::shutdown(bool force) {
  if (context_.process.is_forked()) return context_.process.check();
  if (ender_ == std::this_thread::get_id()) return was_interrupted();
  // A second caller waits for the first.
  const std::lock_guard one_at_a_time(shutdown_mutex_);
  const Ending ending(ender_);
  if (context_.process.is_closed()) return {};
  // A signal handler that calls exit() may have interrupted a call of this thread, which never
  // ends.
  if (!context_.progress.acquire_until(Deadline::after(kToken))) return was_interrupted();
  context_.progress.release();
  auto patience = hand_over_limit();
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
  Status handed_over;
  if (context_.wires != nullptr) {
    if (is_open_) handed_over = hand_over(Deadline::after(patience));
    if (!handed_over) context_.logger.warn(handed_over.message());
    close_groups();
    release_streams();
  }
  context_.process.close();
  context_.keeper.stop();
  context_.registry.close();
  if (context_.control != nullptr) context_.control->leave(Deadline::after(kGoodbye));
  LiveJobs::of_process().remove(*this);
  world_.reset();
  return handed_over;
}

/// Like shutdown(), but nothing is destroyed, and no callback of the program is called: what they
/// use may have been destroyed already.
void Job::leave_at_exit(Deadline limit) noexcept try {
  if (ender_ == std::this_thread::get_id()) return;
  Deadline patience = earlier(limit, Deadline::after(hand_over_limit()));
  const auto one_at_a_time = lock_until(shutdown_mutex_, patience);
  if (!one_at_a_time || !context_.process.allows()) return;
  // The token is never given up if a signal handler has interrupted its holder to call exit().
  if (!context_.progress.acquire_until(Deadline::after(kGoodbye))) return;
  for (const auto& group : context_.registry.groups()) group->note_end_of_program();
  context_.progress.release();
  const Deadline last = earlier(patience, Deadline::after(kLastCalls));
  while (context_.progress.with_token([this] { return owes_calls(); })) {
    if (last.passed()) {
      context_.logger.warn("the program has ended with operations pending; they are dropped");
      patience = Deadline::after(kGoodbye);
      break;
    }
    std::this_thread::yield();
  }
  if (const Status handed_over = hand_over(patience); !handed_over) {
    context_.logger.warn(handed_over.message());
  }
  context_.process.close();
  context_.keeper.stop();
  context_.control->leave(Deadline::after(kGoodbye));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  // Memory has run out. The peers learn that this rank was lost.
}

}  // namespace xylem::runtime
