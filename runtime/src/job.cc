// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include "bootstrap/service_thread.h"
#include "measure.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace xylem::runtime {

using execution::kMaxRanks;
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kPage = 4096;
/// What the outputs of a host's ranks may take together to stay in its caches, which hold inputs as
/// well: measured with 32 MiB of third level (docs/benchmarks.md).
constexpr std::uint64_t kCachedOutputs = 16 << 20;
/// How often the keeper looks while work is pending, and how long it goes on so after the last.
constexpr milliseconds kBusyLook{1};
constexpr milliseconds kTick{50};
constexpr milliseconds kIdleLook{1000};
constexpr unsigned kLooksUntilDoze = 100;
constexpr unsigned kLooksUnattended = 2;
constexpr milliseconds kGoodbye{1000};
/// How long the control plane may take to tell of a death that a wire has felt.
constexpr milliseconds kSuspicion{500};
/// How long, at most, a rank that leaves waits for its peers to take what it has sent.
constexpr milliseconds kHandOver{60'000};

/// A page that reads 1 here and 0 in a forked child.
const volatile char* fork_page() {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, kPage, MADV_WIPEONFORK);
  *static_cast<char*>(page) = 1;
  return static_cast<const volatile char*>(page);
}

}  // namespace

Result<std::shared_ptr<Job>> Job::start(const Options& options) {
  const Environment environment = process_environment();
  JobParts parts;
  XYLEM_TRY(parts.loaded, load_config(environment, options));
  const Config& config = parts.loaded.config;
  const Deadline deadline = Deadline::after(config.start_timeout);
  XYLEM_TRY(parts.placement, detect_placement(config, environment));
  parts.facts = own_facts(parts.loaded);
  LogOptions log = config.log;
  XYLEM_TRY(parts.logger, Logger::open(log, {parts.facts.host, parts.placement.rank, ""}));
  XYLEM_TRY(parts.store, open_store(parts.placement, config, environment, options.store,
                                    parts.logger, deadline));
  XYLEM_TRY(parts.control,
            ControlPlane::join(parts.placement, *parts.store, config, parts.logger, deadline));
  parts.wires = configured_wires(config, parts.control->interface(), parts.logger);
  return start(std::move(parts), deadline);
}

Result<std::shared_ptr<Job>> Job::start(JobParts parts, Deadline deadline) {
  const WireMaker make = parts.wires;
  const PeerFacts facts = parts.facts;
  const auto end = [](Job* job) {
    // In a forked child all of it is the parent's: its thread, and what its peers are connected to.
    if (!job->is_forked()) const std::unique_ptr<Job> ends(job);
  };
  std::shared_ptr<Job> job(new Job(std::move(parts)), end);
  if (Status opened = job->open(facts, make, deadline); !opened) {
    (void)job->shutdown(true);
    return opened;
  }
  return job;
}

Job::Job(JobParts parts)
    : loaded_(std::move(parts.loaded)),
      placement_(std::move(parts.placement)),
      logger_(std::move(parts.logger)),
      store_(std::move(parts.store)),
      control_(std::move(parts.control)),
      lost_(placement_.size),
      left_(placement_.size, Clock::time_point::max()),
      same_process_(fork_page()),
      keeper_wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Status Job::open(const PeerFacts& facts, const WireMaker& make, Deadline deadline) {
  if (placement_.size > kMaxRanks) {
    return failure(Code::unsupported,
                   fmt::format("{} ranks; tags tell apart at most {}", placement_.size, kMaxRanks));
  }
  XYLEM_TRY(wires_, Wires::connect(*control_, facts, make, wire_options(config()), *this, logger_,
                                   deadline));
  const std::uint32_t local = wires_->local_ranks();
  const WaitPolicy policy = WaitPolicy::make(config().wait, wires_->local_cores(), local);
  progress_ = std::make_unique<Progress>(static_cast<Progress::Client&>(*this), policy);
  if (policy.spin.count() > 0) {
    engine_.set_patience(Patience::spinning());
  } else if (policy.yield.count() > 0) {
    engine_.set_patience(Patience::yielding());
  }
  engine_.set_past_cache_from(kCachedOutputs / local);
  XYLEM_TRY(keeper_, start_service_thread("drive progress", [this] { keep(); }));
  GroupSpec spec;
  spec.uid = hash_text(placement_.job);
  spec.rank = rank();
  for (std::uint32_t other = 0; other < size(); ++other) spec.world_ranks.push_back(other);
  registry_.claim_slot(0);
  Tuning tuning = default_tuning(config(), wires_->host_indices());
  tuning.model.host_cores = wires_->host_cores();
  pull_from(config().pull_from.value_or(kNeverPull).value);
  world_ = Group::make(shared_from_this(), std::move(spec), tuning.model);
  XYLEM_TRY(tuning, measure(*world_, std::move(tuning), deadline));
  const Bytes measured{tuning.pull_from.value_or(kNeverPull.value)};
  pull_from(config().pull_from.value_or(measured).value);
  with_token([&] { world_->set_model(std::move(tuning.model)); });
  // All have met: nobody reads it any more, and rank 0 need not serve it.
  store_.reset();
  is_open_ = true;
  return {};
}

void Job::pull_from(std::uint64_t bytes) {
  with_token([&] { wires_->pull_from(bytes); });
}

Job::~Job() {
  if (keeper_.joinable()) {
    stop_ = true;
    wake_keeper();
    keeper_.join();
  }
  if (same_process_ != nullptr) munmap(const_cast<char*>(same_process_), kPage);
}

Status Job::check_process() const noexcept {
  if (is_forked()) {
    return failure(Code::invalid_argument,
                   "this process was forked from one that uses Xylem; it may use nothing of it "
                   "(exec a program of its own)");
  }
  if (closed_.load(std::memory_order_relaxed)) {
    return failure(Code::invalid_argument, "the runtime has shut down");
  }
  return {};
}

void Job::count_operation() noexcept {
  pending_.fetch_add(1, std::memory_order_seq_cst);
  if (keeper_dozes_.load(std::memory_order_seq_cst) && keeper_dozes_.exchange(false)) wake_keeper();
}

bool Job::try_enter() noexcept {
  if (is_forked() || closed_.load(std::memory_order_relaxed) || !progress_->try_acquire()) {
    return false;
  }
  const bool is_quiet = submitted_.load(std::memory_order_relaxed) == nullptr &&
                        !events_waiting_.load(std::memory_order_relaxed) &&
                        !tick_due_.load(std::memory_order_relaxed) && !headers_.has_completed() &&
                        engine_.active() == nullptr;
  if (!is_quiet) progress_->release();
  return is_quiet;
}

void Job::submit(Operation& operation) {
  if (progress_->try_acquire()) {
    take_submitted();
    operation.group->launch(operation);
    run_headers();
    engine_.run();
    progress_->release();
    return;
  }
  Operation* head = submitted_.load(std::memory_order_relaxed);
  do {
    operation.lists.queue_next = head;
  } while (!submitted_.compare_exchange_weak(head, &operation, std::memory_order_release,
                                             std::memory_order_relaxed));
  progress_->notify();
}

void Job::take_submitted() {
  if (submitted_.load(std::memory_order_relaxed) == nullptr) return;
  Operation* newest = submitted_.exchange(nullptr, std::memory_order_acquire);
  Operation* oldest = nullptr;
  while (newest != nullptr) {
    Operation* next = newest->lists.queue_next;
    newest->lists.queue_next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Operation* next = oldest->lists.queue_next;
    oldest->lists.queue_next = nullptr;
    oldest->acquire();  // It may end within, and its submitter may have let go of it.
    oldest->group->launch(*oldest);
    oldest->release();
    oldest = next;
  }
}

void Job::wake_keeper() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(keeper_wake_.get(), &one, sizeof one);
}

unsigned Job::turn() {
  if (events_waiting_.load(std::memory_order_relaxed)) handle_events();
  take_submitted();
  unsigned done = 0;
  for (const auto& wire : wires_->all()) {
    if (wire.transport != nullptr) done += wire.transport->progress();
  }
  run_headers();
  done += engine_.run();
  registry_.drain(*wires_);
  // After the transports: a message that is here already is heard before its sender is missed.
  if (tick_due_.load(std::memory_order_relaxed) && tick_due_.exchange(false)) {
    if (events_waiting_.load(std::memory_order_relaxed)) handle_events();
    const auto now = Clock::now();
    wires_->tick(now);
    watch_.tick(now);
    handle_suspicions(now);
    registry_.end_drains(now);
  }
  registry_.empty_graves();
  return done;
}

bool Job::arm(std::vector<pollfd>& descriptors) {
  if (submitted_.load(std::memory_order_seq_cst) != nullptr ||
      events_waiting_.load(std::memory_order_seq_cst)) {
    return false;
  }
  if (engine_.relieve() || engine_.has_pending_work()) return false;
  for (const auto& wire : wires_->all()) {
    if (wire.transport == nullptr) continue;
    const auto armed = wire.transport->arm();
    if (!armed || !*armed) return false;
    descriptors.push_back({wire.transport->wake_fd(), POLLIN, 0});
  }
  return true;
}

/// Serves the control plane, gives the watch its ticks, and drives what nobody drives.
void Job::keep() {
  Attention attention;
  auto next_tick = Clock::now() + kTick;
  auto control_due = Clock::now();
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool busy = has_work();
    milliseconds wait = attention.wait;
    if (attention.quiet_looks > kLooksUntilDoze) {
      keeper_dozes_.store(true, std::memory_order_seq_cst);
      if (!has_work()) wait = kIdleLook;
    }
    const auto until_control = std::chrono::ceil<milliseconds>(control_due - Clock::now());
    const auto limit = std::clamp(until_control, milliseconds(0), wait);
    pollfd descriptors[] = {{control_->fd(), POLLIN, 0}, {keeper_wake_.get(), POLLIN, 0}};
    ::poll(descriptors, 2, static_cast<int>(limit.count()));
    keeper_dozes_.store(false, std::memory_order_relaxed);
    std::uint64_t drained = 0;
    if (descriptors[1].revents != 0) {
      [[maybe_unused]] const auto got = ::read(keeper_wake_.get(), &drained, sizeof drained);
    }
    control_due = control_->serve(*this);
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTick;
      if (busy) tick_due_.store(true, std::memory_order_relaxed);
    }
    if (events_waiting_.load(std::memory_order_relaxed) || registry_.has_graves() ||
        tick_due_.load(std::memory_order_relaxed)) {
      progress_->notify();
      if (progress_->try_acquire()) {
        turn();
        progress_->release();
      }
    }
    attend(attention);
  }
}

/// Drives when work is pending that nobody has waited for since the last look but one. Where there
/// is none it looks now and then, less and less often: a peer may wait for our part in making a
/// connection, or for room.
void Job::attend(Attention& attention) {
  const auto visits = progress_->visits();
  const bool is_visited = visits != attention.visits || progress_->held();
  attention.visits = visits;
  attention.wait = kBusyLook;
  const bool busy = has_work();
  attention.unattended = is_visited || !busy ? 0 : attention.unattended + 1;
  attention.quiet_looks = is_visited || busy ? 0 : attention.quiet_looks + 1;
  if (!config().progress_thread || is_visited) return;
  if ((busy && attention.unattended < kLooksUnattended) || !progress_->try_acquire()) return;
  const auto worked = progress_->work_off(stop_);
  if (worked != Progress::Worked::nothing) attention.quiet_looks = 0;
  // Asleep on the transports' descriptors, which is quicker than the next look; but a transport
  // whose messages wait for room may refuse.
  const bool slept = busy && worked != Progress::Worked::interrupted && has_work() &&
                     progress_->doze(pollfd{control_->fd(), POLLIN, 0});
  progress_->release();
  if (slept || worked == Progress::Worked::interrupted) attention.wait = milliseconds(0);
}

void Job::on_ended(Execution& execution, Status outcome) {
  Operation& operation = *as_operation(&execution);
  operation.group->on_ended(operation);
  pending_.fetch_sub(1, std::memory_order_release);
  operation.end(std::move(outcome));
  operation.release();
  progress_->announce_ended();
}

void Job::on_wire_error(Execution& execution, std::uint32_t peer, Code code) {
  Operation& operation = *as_operation(&execution);
  Group& group = *operation.group;
  if (peer == collectives::kNone) peer = operation.call.peer;
  // A receive from any source knows its peer once it has met a message.
  const std::uint32_t culprit =
      peer == collectives::kNone ? operation.source : group.world_rank(peer);
  if (code == Code::mismatch) {
    return announce(group, code, culprit,
                    fmt::format("rank {} got a message of another size than its call {} expects "
                                "from rank {}",
                                rank(), operation.sequence, culprit));
  }
  suspect(group, failure(code,
                         fmt::format("rank {} lost its connection to rank {} ({})", rank(), culprit,
                                     name(code)),
                         culprit));
}

void Job::on_compute_error(Execution& execution, const Status& why) {
  const Operation& operation = *as_operation(&execution);
  announce(*operation.group, why.code(), rank(),
           fmt::format("rank {} cannot go on with call {}: {}", rank(), operation.sequence,
                       why.message()));
}

void Job::suspect(Group& group, Status why) {
  suspicions_.push_back({group.weak_from_this(), std::move(why), Clock::now(), false});
  suspects_ = true;
}

void Job::handle_suspicions(Clock::time_point now) {
  std::vector<Suspicion> ripe;
  std::erase_if(suspicions_, [&](Suspicion& suspicion) {
    const bool due = now - suspicion.since >= kSuspicion;
    if (due) ripe.push_back(std::move(suspicion));
    return due;
  });
  suspects_ = !suspicions_.empty();
  for (const Suspicion& suspicion : ripe) {
    const Status& why = suspicion.why;
    const bool is_over = suspicion.unless_left && why.peer() && has_left(*why.peer());
    const auto alive = suspicion.group.lock();
    if (alive && !is_over) {
      announce(*alive, why.code(), why.peer(), std::string(why.message()));
    }
  }
}

void Job::on_body(Message& message) { operation_of(message).group->on_body(message); }

void Job::on_peer_lost(std::uint32_t rank, std::string_view how) {
  post({Event::Kind::lost, rank, std::string(how), {}, {}, {}});
}

void Job::on_peer_left(std::uint32_t rank) { post({Event::Kind::left, rank, {}, {}, {}, {}}); }

void Job::on_message(std::uint32_t origin, std::span<const std::byte> message) {
  post({Event::Kind::message, origin, {}, {message.begin(), message.end()}, {}, {}});
}

void Job::on_met(Encounter encounter) {
  const std::uint32_t peer = encounter.rank;
  post({Event::Kind::met, peer, {}, {}, std::move(encounter), {}});
}

void Job::on_unmet(std::uint32_t rank, const Status& why) {
  post({Event::Kind::unmet, rank, {}, {}, {}, why});
}

void Job::post(Event event) {
  {
    const std::lock_guard lock(events_mutex_);
    events_.push_back(std::move(event));
  }
  events_waiting_.store(true, std::memory_order_seq_cst);
}

void Job::handle_events() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(events_mutex_);
    events.swap(events_);
    events_waiting_.store(false, std::memory_order_relaxed);
  }
  for (Event& event : events) handle_event(event);
}

void Job::handle_event(Event& event) {
  switch (event.kind) {
    case Event::Kind::message: return watch_.on_message(event.rank, event.message);
    case Event::Kind::left:
      left_[event.rank] = Clock::now();
      return wires_->give_up_meeting(event.rank);
    case Event::Kind::lost: return handle_loss(event);
    case Event::Kind::met: {
      const Status adopted = wires_->adopt(std::move(event.encounter));
      return adopted ? void() : handle_unmet(event.rank, adopted);
    }
    case Event::Kind::unmet: return handle_unmet(event.rank, event.why);
  }
}

void Job::handle_unmet(std::uint32_t world_rank, const Status& why) {
  suspect_all(world_rank,
              failure(why.code(), fmt::format("rank {} cannot be connected to rank {}: {}", rank(),
                                              world_rank, why.message())));
  wires_->give_up_meeting(world_rank);
}

void Job::handle_loss(const Event& event) {
  if (!lost_[event.rank].is_ok()) return;
  const Status why = lost_[event.rank] =
      failure(Code::peer_lost,
              fmt::format("rank {} on {} was lost: {}", event.rank,
                          wires_->peers()[event.rank].host, event.text),
              event.rank);
  logger_.error(why.message());
  for (const auto& group : registry_.groups()) {
    if (group->rank_of(event.rank)) group->poison(why);
  }
  wires_->close(event.rank);
}

void Job::on_link_lost(std::uint32_t world_rank, Code code) {
  suspect_all(world_rank, failure(code, fmt::format("rank {} lost its connection to rank {} ({})",
                                                    rank(), world_rank, name(code))));
}

/// Also groups whose calls do not wait for this connection now: what it carried is gone.
void Job::suspect_all(std::uint32_t world_rank, const Status& why) {
  for (const auto& group : registry_.groups()) {
    if (!group->rank_of(world_rank)) continue;
    suspicions_.push_back({group->weak_from_this(),
                           failure(why.code(), std::string(why.message()), world_rank),
                           Clock::now(), true});
    suspects_ = true;
  }
}

void Job::announce(Group& group,
                   Code code,
                   std::optional<std::uint32_t> culprit,
                   std::string message) {
  if (!group.is_well()) return;
  if (code != Code::cancelled) logger_.error(message);
  control_->flood(encode(Verdict{group.uid(), code, culprit, message}));
  group.poison(failure(code, std::move(message), culprit));
}

void Job::run_headers() {
  while (HeaderSlot* slot = headers_.take_completed()) {
    if (!slot->incoming && slot->code != Code::ok) on_unsent(*slot);
    headers_.hand_over(*slot);
  }
}

/// A header has not reached its peer.
void Job::on_unsent(const HeaderSlot& slot) {
  const auto group = registry_.find(slot.header.group);
  if (group == nullptr) return;
  suspect(*group, failure(slot.code,
                          fmt::format("rank {} lost its connection to rank {} ({})", rank(),
                                      slot.peer, name(slot.code)),
                          slot.peer));
}

void Job::on_poisoned(const Group& group) {
  registry_.on_poisoned(group);
  wake_keeper();
}

void Job::bury(std::unique_ptr<Group> group) {
  if (is_forked()) return;
  registry_.bury(std::move(group));
  if (closed_.load(std::memory_order_relaxed)) return;
  if (progress_->try_acquire()) {
    progress_->release();
  } else {
    progress_->notify();
    wake_keeper();
  }
}

void Job::enlist(const std::shared_ptr<Group>& group) {
  registry_.enlist(group);
  for (std::uint32_t member = 0; member < group->size(); ++member) {
    const Status& lost = lost_[group->world_rank(member)];
    if (!lost.is_ok()) group->poison(lost);
  }
  watch_.on_enlisted(*group);
}

std::vector<PathInfo> Job::paths() {
  if (!check_process()) return {};
  return with_token([this] {
    std::vector<PathInfo> paths;
    paths.reserve(size());
    for (std::uint32_t other = 0; other < size(); ++other) paths.push_back(wires_->path(other));
    return paths;
  });
}

void Job::abort_all() {
  const auto groups = registry_.groups();
  with_token([&] {
    for (const auto& group : groups) {
      if (group->pending() == 0) continue;
      announce(*group, Code::cancelled, rank(),
               fmt::format("rank {} ended its runtime with operations pending", rank()));
    }
  });
  const Deadline patience = Deadline::after(Watch::kQuarantine + milliseconds(500));
  while (pending_.load(std::memory_order_acquire) > 0 && !patience.passed()) progress_->poke();
}

/// Waits until what this rank has sent has left it: its sends have ended, but messages may wait for
/// room at the peers. A rank that has left reads no more. What still comes here is for nobody, and
/// is dropped, so two that leave at once do not wait for each other.
Status Job::hand_over(Deadline patience) {
  std::uint32_t waits_for = 0;
  const auto is_gone = [&] {
    turn();
    for (const auto& wire : wires_->all()) {
      if (wire.transport != nullptr) wire.transport->discard(0, 0);
    }
    for (; waits_for < size(); ++waits_for) {
      if (has_left(waits_for)) continue;
      if (headers_.is_sending_to(waits_for) || !wires_->flush(waits_for)) return false;
    }
    return true;
  };
  while (!with_token(is_gone)) {
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

/// Also those whose communicators the user still holds: their posted receives must not outlive the
/// wires.
void Job::close_groups() {
  for (const auto& group : registry_.groups()) group->close();
  const Deadline patience = Deadline::after(kGoodbye);
  with_token([&] {
    while (headers_.receiving() > 0 && !patience.passed()) turn();
  });
}

Status Job::shutdown(bool force) {
  if (is_forked()) return check_process();
  // Who comes second waits for the first.
  const std::lock_guard one_at_a_time(shutdown_mutex_);
  if (closed_) return {};
  auto patience = std::min<std::chrono::nanoseconds>(kHandOver, config().timeout);
  if (const auto left = pending_.load(std::memory_order_acquire); left > 0) {
    if (!force) {
      return failure(Code::busy,
                     fmt::format("{} operations are pending; wait for them before shutdown", left));
    }
    logger_.warn(
        fmt::format("the runtime ends with {} operations pending; they are aborted", left));
    abort_all();
    patience = kGoodbye;
  }
  Status handed_over;
  if (progress_ != nullptr) {
    if (is_open_) handed_over = hand_over(Deadline::after(patience));
    if (!handed_over) logger_.warn(handed_over.message());
    close_groups();
  }
  closed_ = true;
  stop_ = true;
  wake_keeper();
  if (keeper_.joinable()) keeper_.join();
  registry_.close();
  if (control_ != nullptr) control_->leave(Deadline::after(kGoodbye));
  world_.reset();
  return handed_over;
}

}  // namespace xylem::runtime
