// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include "xylem/execution/patience.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

namespace xylem::runtime {

using execution::relax;
namespace {

using std::chrono::microseconds;

/// While a waiter spins and nothing happens, it reads the clock once in this many turns.
constexpr std::uint32_t kTurnsPerLook = 32;
constexpr std::chrono::milliseconds kLongestSleep{50};
/// How long the progress thread turns or sleeps before it looks at its other duties.
constexpr std::chrono::milliseconds kShare{10};
/// How often a thread that waits beside the program looks whether the program computes.
constexpr microseconds kLookAtProgram{500};
/// Waits at once until something happens.
constexpr WaitPolicy kPatiently{
    .spin = {}, .yield = {}, .sleep = true, .learns = false, .stays_by_program = false};

/// See ProgramThread::leave_out_this_thread().
thread_local bool is_left_out = false;

pid_t own_id() noexcept {
  static thread_local const pid_t kId = ::gettid();
  return kId;
}

/// Tells an idle waiter whether to spin, yield or sleep next.
class Idleness {
 public:
  enum class Next : std::uint8_t { spin, yield, sleep };

  /// Only this thread uses `learner` while this object exists. It may be null.
  Idleness(const WaitPolicy& policy, SpinLearner* learner) noexcept
      : policy_(policy), learner_(policy.learns ? learner : nullptr), spin_(policy.spin) {}

  /// Call this when something has happened: ends the idle period, if there is one.
  void reset() noexcept {
    if (turns_ == 0) return;
    if (is_timed_) learner_->note(spin_.count() > 0, Clock::now() - begun_);
    turns_ = 0;
    has_looked_ = false;
  }
  /// What to do after a turn in which nothing happened. Sets `looked` if the clock was read.
  Next step(bool& looked) noexcept {
    looked = false;
    if (turns_ == 0) begin();
    if (++turns_ % (next_ == Next::spin ? kTurnsPerLook : 4) != 0) return next_;
    looked = true;
    const auto now = Clock::now();
    if (!has_looked_) since_ = now;
    has_looked_ = true;
    const auto idle = now - since_;
    if (idle < spin_) {
      next_ = Next::spin;
    } else if (idle < spin_ + policy_.yield || !policy_.sleep) {
      next_ = policy_.yield.count() == 0 ? Next::spin : Next::yield;
    } else {
      next_ = Next::sleep;
    }
    return next_;
  }

  void yield() noexcept {
    if (learner_ == nullptr) {
      sched_yield();
      return;
    }
    // A yield that takes at least this long is a long one. A peer that shares the core and only
    // waits gives it back sooner.
    constexpr microseconds kLong{900};
    constexpr unsigned kInARow = 3;
    const auto before = Clock::now();
    sched_yield();
    long_yields_ = Clock::now() - before > kLong ? long_yields_ + 1 : 0;
    if (long_yields_ >= kInARow) learner_->note_lost_core();
  }

 private:
  void begin() noexcept {
    if (learner_ != nullptr) {
      const auto [spins, is_timed] = learner_->next();
      spin_ = spins ? policy_.spin : std::chrono::nanoseconds(0);
      is_timed_ = is_timed;
      if (is_timed_) begun_ = Clock::now();
    }
    next_ = spin_.count() > 0 ? Next::spin : policy_.yield.count() > 0 ? Next::yield : Next::sleep;
  }

  const WaitPolicy& policy_;
  SpinLearner* const learner_;
  std::chrono::nanoseconds spin_;  ///< How long this idle period spins.
  std::uint32_t turns_ = 0;
  bool has_looked_ = false;
  bool is_timed_ = false;     ///< True if the learner must be told the length of this idle period.
  unsigned long_yields_ = 0;  ///< How many long yields there were in a row.
  Next next_ = Next::spin;
  Clock::time_point begun_{};  ///< Start of an idle period that is timed.
  Clock::time_point since_{};  ///< When the clock was first read in this idle period.
};

/// Spins, yields or sleeps after a turn in which nothing happened. Returns whether the clock was
/// read.
template <typename Yield, typename Sleep>
bool idle(Idleness& idleness, const Yield& yield, const Sleep& sleep) {
  bool looked = false;
  switch (idleness.step(looked)) {
    case Idleness::Next::spin: relax(); break;
    case Idleness::Next::yield: yield(); break;
    case Idleness::Next::sleep: sleep(); break;
  }
  return looked;
}

/// Counts its object from begin() on.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) noexcept : count_(count) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() {
    if (has_begun_) count_.fetch_sub(1, std::memory_order_relaxed);
  }
  void begin() noexcept {
    if (!std::exchange(has_begun_, true)) count_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t>& count_;
  bool has_begun_ = false;
};

}  // namespace

WaitPolicy WaitPolicy::make(WaitMode mode,
                            std::uint32_t cores,
                            std::uint32_t local_ranks,
                            bool has_core_for_each) noexcept {
  constexpr auto kForever = std::chrono::hours(24 * 365);
  switch (mode) {
    case WaitMode::spin: return {kForever, {}, false};
    case WaitMode::yield: return {{}, kForever, false};
    case WaitMode::sleep: return {{}, {}, true};
    case WaitMode::automatic: break;
  }
  const bool has_cores = cores >= local_ranks;
  return {.spin = has_cores ? microseconds(200) : microseconds(0),
          .yield = microseconds(1000),
          .sleep = true,
          .learns = has_cores,
          .stays_by_program = has_cores && has_core_for_each && local_ranks > 1};
}

SpinLearner::Next SpinLearner::next() noexcept {
  // Yielding is taken only if its idle periods are a fifth shorter. Otherwise chance would decide
  // if both ways are equally good.
  const bool spins = 5 * yielding_ >= 4 * spinning_;
  is_trial_ = --until_trial_ <= 0;
  if (!is_trial_) {
    // Reading the clock takes time, so only one period in eight is timed.
    constexpr std::int64_t kTimed = 8;
    return {spins, until_trial_ % kTimed == 0};
  }
  constexpr Nanoseconds kLeast = 100, kMostRatio = 1024;
  const auto better = std::max(spins ? spinning_ : yielding_, kLeast);
  const auto worse = std::max(spins ? yielding_ : spinning_, kLeast);
  constexpr std::int64_t kPart = 64;
  until_trial_ = kPart * std::clamp<Nanoseconds>(worse / better, 1, kMostRatio);
  return {!spins, true};
}

void SpinLearner::note_lost_core() noexcept {
  constexpr Nanoseconds kSlice = 4'000'000;
  constexpr std::int64_t kPeriods = 1024;
  yielding_ = kSlice;
  spinning_ = 0;
  until_trial_ = kPeriods;
}

void SpinLearner::note(bool has_spun, std::chrono::nanoseconds idle) noexcept {
  constexpr Nanoseconds kLongest = 4'000'000;
  // Trials are rare, so the result of a trial counts more than older results.
  const Nanoseconds weight = is_trial_ ? 2 : 8;
  Nanoseconds& average = has_spun ? spinning_ : yielding_;
  average += (std::min<Nanoseconds>(idle.count(), kLongest) - average) / weight;
}

void ProgramThread::leave_out_this_thread() noexcept { is_left_out = true; }

void ProgramThread::note_call() noexcept {
  if (is_left_out) return;
  const pid_t id = own_id();
  if (id_.load(std::memory_order_relaxed) != id) id_.store(id, std::memory_order_relaxed);
}

ProgramThread::Look ProgramThread::look() noexcept {
  const pid_t id = id_.load(std::memory_order_relaxed);
  if (id == 0 || id == own_id()) return {};
  if (asked_ != id) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", id);
    stat_.reset(::open(path.data(), O_RDONLY | O_CLOEXEC));
    asked_ = stat_ ? id : 0;
  }
  // "<id> (<name>) <state> ... <core> <real-time priority> ...": the name has up to 15 characters
  // of any kind, and the core is the 36th word after the state (proc(5)). Nothing can be read of a
  // thread that has ended, also if another thread has got its id.
  constexpr int kCore = 36;
  std::array<char, 512> text{};
  const auto length = stat_ ? ::pread(stat_.get(), text.data(), text.size(), 0) : 0;
  if (length <= 0) asked_ = 0;
  std::string_view line(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const auto name_end = line.rfind(") ");
  if (name_end == std::string_view::npos) return {};
  line.remove_prefix(name_end + 2);
  Look look{.is_running = line.starts_with('R')};
  for (int word = 0; word < kCore; ++word) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min<std::size_t>(1, line.size()));
  }
  const char* const end = line.data() + line.size();
  const auto [after, error] = std::from_chars(line.data(), end, look.core);
  int priority = 0;
  if (after != end) std::from_chars(after + 1, end, priority);
  if (error != std::errc() || priority != 0) look.core = -1;
  return look;
}

Progress::Progress(Client& client)
    : client_(client), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Progress::poke() {
  if (!try_acquire()) return;
  visited();
  client_.turn();
  release();
}

void Progress::turn_if_free() {
  if (!try_acquire()) return;
  client_.turn();
  release();
}

bool Progress::wait(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter) {
  // If the user has chosen how to wait, all threads wait that way.
  const bool may_be_patient = waiter == Waiter::beside && policy_.sleep;
  Idleness idleness(may_be_patient ? kPatiently : policy_, nullptr);
  Counted counted(programs_);
  while (!ended.load(std::memory_order_acquire)) {
    const bool gives_way = may_be_patient && programs_.load(std::memory_order_relaxed) > 0;
    if (!gives_way && claims_.load(std::memory_order_relaxed) == 0 && try_acquire()) {
      visited();
      may_be_patient ? drive_beside(ended, deadline) : drive(ended, deadline);
      release();
      if (!ended.load(std::memory_order_acquire) && deadline.passed()) return false;
      continue;
    }
    if (waiter == Waiter::program) counted.begin();
    // A thread of the program, or one that acquires, may need this core to take the token.
    if (may_be_patient && !held()) sched_yield();
    if (idle(idleness, sched_yield, [&] { park(ended, deadline); })) {
      wanted_.fetch_add(1, std::memory_order_seq_cst);
      notify();
      wanted_.fetch_sub(1, std::memory_order_relaxed);
      if (deadline.passed()) return ended.load(std::memory_order_acquire);
    }
  }
  return true;
}

void Progress::drive(const std::atomic<bool>& ended, Deadline deadline) {
  drive_until(
      ended, deadline, [&] { return claims_.load(std::memory_order_relaxed) != 0; },
      [] { return false; });
}

/// Makes turns until the operation ends, the deadline passes, or `must_stop()`, and waits in
/// between as the policy says. While nothing happens, it calls `look()` now and then, and stops if
/// that returns true.
template <typename Stop, typename Look>
void Progress::drive_until(const std::atomic<bool>& ended,
                           Deadline deadline,
                           const Stop& must_stop,
                           const Look& look) {
  Idleness idleness(policy_, &learner_);
  while (!ended.load(std::memory_order_acquire) && !must_stop()) {
    if (client_.turn() != 0) {
      idleness.reset();
      continue;
    }
    if (ended.load(std::memory_order_acquire)) return;
    const auto yield = [&] { idleness.yield(); };
    const auto sleep_or_yield = [&] {
      // sleep() refuses while a device has pending work, since its completion would wake nobody.
      if (!sleep(std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.left()))) sched_yield();
    };
    if (idle(idleness, yield, sleep_or_yield) && (deadline.passed() || look())) return;
  }
}

/// drive() for a thread that waits beside the program.
void Progress::drive_beside(const std::atomic<bool>& ended, Deadline deadline) {
  CoreBinding binding;
  while (!ended.load(std::memory_order_acquire) && !must_give_way() && !deadline.passed()) {
    if (do_ranks_share_cores() || look_at_programs(binding)) {
      client_.set_patient(true);
      drive_patiently(ended, deadline, binding);
      client_.set_patient(false);
      continue;
    }
    auto next_look = Clock::now() + kLookAtProgram;
    const auto look = [&] {
      const auto now = Clock::now();
      if (now < next_look) return false;
      next_look = now + kLookAtProgram;
      return look_at_programs(binding);
    };
    drive_until(
        ended, deadline, [this] { return must_give_way(); }, look);
  }
  client_.show_computing(false);
}

/// Whether a thread that waits beside the program must give up the token.
bool Progress::must_give_way() const noexcept {
  return claims_.load(std::memory_order_relaxed) != 0 ||
         programs_.load(std::memory_order_relaxed) != 0;
}

/// Whether the program computes, here or at another rank of this host. Tells the other ranks. While
/// it computes here and there, `binding` keeps this thread on its core if the policy says so; but
/// not while a device works, since this thread then polls and needs a core that is free.
bool Progress::look_at_programs(CoreBinding& binding) {
  const auto [computes, core] = program_.look();
  client_.show_computing(computes);
  const bool peers_compute = client_.do_peers_compute();
  if (policy_.stays_by_program && computes && peers_compute && !client_.waits_for_device()) {
    binding.bind(core);
  } else {
    binding.release();
  }
  return computes || peers_compute;
}

/// Makes turns until the operation ends, the deadline passes, it must give way, or no program
/// computes. Where ranks share cores, some program computes most of the time, so nobody looks.
void Progress::drive_patiently(const std::atomic<bool>& ended,
                               Deadline deadline,
                               CoreBinding& binding) {
  // Yielding would give up the core for several milliseconds, so it is for transports that cannot
  // be slept on.
  constexpr unsigned kRefusals = 16;
  unsigned refused = 0;
  auto look = Clock::now() + kLookAtProgram;
  for (unsigned turns = 1; !ended.load(std::memory_order_acquire) && !must_give_way(); ++turns) {
    if (client_.turn() != 0) {
      refused = 0;
      if (turns % kTurnsPerLook != 0) continue;
    } else if (ended.load(std::memory_order_acquire) || deadline.passed()) {
      return;
    } else if (sleep(std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.left()))) {
      refused = 0;
    } else if (++refused >= kRefusals) {
      binding.release();  // A thread that polls needs a core that is free.
      sched_yield();
    }
    if (const auto now = Clock::now(); now >= look) {
      if (!do_ranks_share_cores() && !look_at_programs(binding)) return;
      look = now + kLookAtProgram;
    }
  }
}

void Progress::acquire() {
  claims_.fetch_add(1, std::memory_order_relaxed);
  wanted_.fetch_add(1, std::memory_order_seq_cst);
  while (!try_acquire()) {
    notify();
    sched_yield();
  }
  wanted_.fetch_sub(1, std::memory_order_relaxed);
  claims_.fetch_sub(1, std::memory_order_relaxed);
  visited();
}

Progress::Worked Progress::work_off(const std::atomic<bool>& stop) {
  const Deadline share = Deadline::after(kShare);
  Worked worked = Worked::nothing;
  client_.set_patient(true);
  while (worked != Worked::interrupted && client_.turn() != 0) {
    const bool is_wanted = wanted_.load(std::memory_order_relaxed) != 0;
    const bool is_over = is_wanted || stop.load(std::memory_order_relaxed) || share.passed();
    worked = is_over ? Worked::interrupted : Worked::some;
  }
  client_.set_patient(false);
  return worked;
}

Progress::Worked Progress::spin_for_device(const std::atomic<bool>& stop) {
  const Deadline share = Deadline::after(kShare);
  Worked worked = Worked::nothing;
  auto last = Clock::now();
  for (std::uint32_t turns = 1; client_.waits_for_device(); ++turns) {
    const bool has_worked = client_.turn() != 0;
    if (has_worked) worked = Worked::some;
    if (wanted_.load(std::memory_order_relaxed) != 0 || stop.load(std::memory_order_relaxed)) {
      return Worked::interrupted;
    }
    if (!has_worked && turns % kTurnsPerLook != 0) {
      relax();
      continue;
    }
    const auto now = Clock::now();
    if (has_worked) last = now;
    if (now - last >= policy_.spin) return worked;
    if (share.passed()) return Worked::interrupted;
  }
  return worked;
}

bool Progress::doze(pollfd extra) { return sleep(kShare, &extra); }

void Progress::release() noexcept {
  client_.on_release();
  trace_token(TokenEvent::given_up);
  held_.store(false, std::memory_order_seq_cst);
  announce_ended();
}

void Progress::notify() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!sleeping_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void Progress::announce_ended() noexcept {
  if (parked_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(park_mutex_);
  park_condition_.notify_all();
}

/// Sleeps if there is no work. It announces the sleep first and then looks for work. A caller of
/// notify() publishes its work first and then looks for a sleeper. So one of the two always sees
/// the other.
bool Progress::sleep(std::chrono::nanoseconds limit, const pollfd* extra) {
  bool slept = false;
  sleeping_.store(true, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (client_.turn() == 0 && wanted_.load(std::memory_order_seq_cst) == 0) {
    descriptors_.assign(1, pollfd{wake_.get(), POLLIN, 0});
    if (extra != nullptr) descriptors_.push_back(*extra);
    slept = client_.arm(descriptors_);
    if (slept) {
      const auto count = std::max<std::int64_t>(limit.count(), 0);
      const timespec wait{static_cast<time_t>(count / 1'000'000'000),
                          static_cast<long>(count % 1'000'000'000)};
      ::ppoll(descriptors_.data(), descriptors_.size(), &wait, nullptr);
    }
  }
  sleeping_.store(false, std::memory_order_relaxed);
  std::uint64_t drained = 0;
  [[maybe_unused]] const auto got = ::read(wake_.get(), &drained, sizeof drained);
  return slept;
}

void Progress::park(const std::atomic<bool>& ended, Deadline deadline) {
  parked_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(park_mutex_);
    const auto until = std::min(deadline.point(), Clock::now() + kLongestSleep);
    park_condition_.wait_until(lock, until,
                               [&] { return ended.load(std::memory_order_acquire) || !held(); });
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace xylem::runtime
