// SPDX-License-Identifier: Apache-2.0
#include "progress/progress.h"

#include "xylem/execution/poll_budget.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace xylem::runtime {

using execution::relax;
namespace {

using std::chrono::microseconds;

constexpr std::chrono::milliseconds kLongestSleep{50};
/// How long the progress thread makes turns or sleeps before it serves the control plane again.
constexpr std::chrono::milliseconds kShare{10};
/// How often a thread that waits beside the application checks whether the application computes.
constexpr microseconds kLookAtProgram{500};
/// How long a waiter sleeps between two turns if a transport cannot wake it.
constexpr microseconds kNap{50};

/// Spins, yields or sleeps after a turn in which nothing happened. Returns whether the clock was
/// read.
template <typename Yield, typename Sleep>
bool idle(Idleness& idleness, bool is_crowded, const Yield& yield, const Sleep& sleep) {
  bool looked = false;
  switch (idleness.step(is_crowded, looked)) {
    case Idleness::Next::spin: relax(); break;
    case Idleness::Next::yield: yield(); break;
    case Idleness::Next::sleep: sleep(); break;
  }
  return looked;
}

/// Increments `count` in begin(), and decrements it in end() or the destructor.
class Counted {
 public:
  explicit Counted(std::atomic<std::uint32_t>& count) noexcept : count_(count) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { end(); }
  void begin() noexcept {
    if (!std::exchange(has_begun_, true)) count_.fetch_add(1, std::memory_order_relaxed);
  }
  void end() noexcept {
    if (std::exchange(has_begun_, false)) count_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t>& count_;
  bool has_begun_ = false;
};

}  // namespace

Progress::Progress(WorkSources& sources)
    : sources_(sources), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Progress::open(WaitPolicy policy, transport::HostPeers& peers) noexcept {
  policy_ = policy;
  peers_ = &peers;
  wakes_.open(peers);
  contention_.set_losses_to_begin(do_ranks_share_cores() ? 3 : 1);
}

unsigned Progress::turn(Token token) {
  wakes_.begin_turn();
  const unsigned done = sources_.turn(token);
  wakes_.end_turn(done);
  return done;
}

void Progress::poke() {
  if (!try_acquire()) return;
  visited();
  turn(assert_held());
  release();
}

void Progress::turn_if_free() {
  if (!try_acquire()) return;
  turn(assert_held());
  release();
}

bool Progress::wait(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter) {
  // If the user has chosen never to sleep, a helper thread waits like a thread of the application.
  if (!policy_.sleep) waiter = Waiter::application;
  Idleness idleness(policy_);
  Counted counted(application_waiters_);
  const auto park_here = [&] { park(ended, deadline); };
  while (!ended.load(std::memory_order_acquire)) {
    if (!must_release_token(waiter) && try_acquire()) {
      counted.end();
      visited();
      drive(ended, deadline, waiter);
      release();
      if (!ended.load(std::memory_order_acquire) && deadline.passed()) return false;
      continue;
    }
    if (waiter == Waiter::application) counted.begin();
    const bool parks = waiter == Waiter::helper || contention_.is_present();
    // The token is free: some thread is about to acquire it, and may need this core.
    if (parks && !held()) sched_yield();
    if (parks && waiter == Waiter::application) request_token();
    if (parks) {
      park_here();
    } else if (!idle(idleness, is_crowded(), sched_yield, park_here)) {
      continue;
    }
    request_token();
    if (deadline.passed()) return ended.load(std::memory_order_acquire);
  }
  return true;
}

/// Requests the token: makes the progress thread, or a thread that waits beside the application,
/// release it soon.
void Progress::request_token() noexcept {
  token_requests_.fetch_add(1, std::memory_order_relaxed);
  notify();
  token_requests_.fetch_sub(1, std::memory_order_relaxed);
}

/// Makes turns until the operation ends, the deadline passes, or the thread must release the token
/// to another thread. Between turns, the thread waits. At least one turn is made, even if the
/// deadline has passed.
void Progress::drive(const std::atomic<bool>& ended, Deadline deadline, Waiter waiter) {
  CoreBinding binding;
  do {
    if (must_sleep_early(waiter, binding)) {
      wakes_.set_patient(true);
      drive_sleeping(ended, deadline, waiter, binding);
      wakes_.set_patient(false);
    } else {
      drive_eagerly(ended, deadline, waiter, binding);
    }
  } while (!ended.load(std::memory_order_acquire) && !must_release_token(waiter) &&
           !deadline.passed());
  if (waiter == Waiter::helper) peers_->show_computing(false);
}

/// Waits as the policy says: polls first, and sleeps later. Returns early when the thread must wait
/// patiently.
void Progress::drive_eagerly(const std::atomic<bool>& ended,
                             Deadline deadline,
                             Waiter waiter,
                             CoreBinding& binding) {
  Idleness idleness(policy_, learner_, contention_);
  auto next_look = waiter == Waiter::helper ? Clock::now() + kLookAtProgram : Clock::time_point{};
  while (!ended.load(std::memory_order_acquire) && !must_release_token(waiter)) {
    if (turn(assert_held()) != 0) {
      idleness.reset();
      continue;
    }
    if (ended.load(std::memory_order_acquire)) return;
    const auto yield = [&] { idleness.yield(); };
    const auto sleep_or_yield = [&] {
      // sleep() returns false while a device has pending work, since the completion of this work
      // would not wake the thread.
      const auto limit = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.left());
      if (!sleep(limit, &ended)) sched_yield();
    };
    const bool looked = idle(idleness, is_crowded(), yield, sleep_or_yield);
    if (contention_.is_present()) return;
    if (!looked) continue;
    if (deadline.passed()) return;
    if (waiter != Waiter::helper) continue;
    const auto now = Clock::now();
    if (now < next_look) continue;
    next_look = now + kLookAtProgram;
    if (check_application_threads(binding)) return;
  }
}

/// Whether a thread that holds the token, or could acquire it, must leave the token to another
/// thread.
bool Progress::must_release_token(Waiter waiter) const noexcept {
  return acquiring_.load(std::memory_order_relaxed) != 0 ||
         (waiter == Waiter::helper && application_waiters_.load(std::memory_order_relaxed) != 0);
}

/// Whether this thread must wait patiently, since other threads need the core more.
bool Progress::must_sleep_early(Waiter waiter, CoreBinding& binding) {
  const bool is_contended = contention_.is_present();
  if (waiter == Waiter::application) return is_contended;
  // If ranks share cores, the application computes at some rank most of the time, so this is not
  // checked.
  return do_ranks_share_cores() || check_application_threads(binding) || is_contended;
}

/// Whether the application computes, at this rank or at another rank of this host. Publishes to the
/// other ranks whether it computes here. If it computes both here and at another rank, and if the
/// policy says so, `binding` binds this thread to the core of the application's thread. While a
/// source needs polling, the thread is not bound: it polls then, and needs a core that is free.
bool Progress::check_application_threads(CoreBinding& binding) {
  const auto [computes, core] = program_.state();
  peers_->show_computing(computes);
  const bool peers_compute = peers_->do_peers_compute();
  if (policy_.follows_application && computes && peers_compute && !needs_polling(assert_held())) {
    binding.bind(core);
  } else {
    binding.release();
  }
  return computes || peers_compute;
}

/// Sleeps as soon as a turn finds nothing to do, and wakes peers only when this rank has no more
/// work. Returns when the operation has ended, the deadline has passed, another thread must get the
/// token, or the thread need not wait patiently.
void Progress::drive_sleeping(const std::atomic<bool>& ended,
                              Deadline deadline,
                              Waiter waiter,
                              CoreBinding& binding) {
  constexpr unsigned kRefusals = 16;
  unsigned refused = 0;
  auto next_look = Clock::now() + kLookAtProgram;
  for (unsigned turns = 1; !ended.load(std::memory_order_acquire) && !must_release_token(waiter);
       ++turns) {
    const bool is_idle = turn(assert_held()) == 0;
    if (!is_idle && turns % kTurnsPerLook != 0) continue;
    const auto now = Clock::now();
    if (is_idle) {
      if (ended.load(std::memory_order_acquire) || deadline.point() <= now) return;
      // Peers have been woken, and nothing has arrived for this rank.
      if (probe_contention(now)) continue;
      const auto limit = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.point() - now);
      if (sleep(limit, &ended)) {
        refused = 0;
      } else if (++refused >= kRefusals) {
        binding.release();  // A thread that polls needs a core that is free.
        nap();
      }
    } else {
      refused = 0;
    }
    if (now < next_look) continue;
    if (!must_sleep_early(waiter, binding)) return;
    next_look = Clock::now() + kLookAtProgram;
  }
}

/// Waits for a moment in cases in which no event would end a sleep: while a device works, or over a
/// transport that cannot wake this thread. Under contention it sleeps, since a yield would cost a
/// time slice.
void Progress::nap() noexcept {
  if (!contention_.is_present()) {
    sched_yield();
    return;
  }
  const timespec moment{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kNap).count()};
  ::ppoll(nullptr, 0, &moment, nullptr);
}

/// If it is time for a probe (Contention::wants_probe()), finds out by a yield whether other
/// programs still compute. True if a probe was made.
bool Progress::probe_contention(Clock::time_point now) noexcept {
  if (!contention_.is_present() || !contention_.wants_probe(now)) return false;
  const auto before = Clock::now();
  sched_yield();
  const auto after = Clock::now();
  contention_.note_probe(after - before, after);
  return true;
}

bool Progress::acquire_until(Deadline deadline) {
  acquiring_.fetch_add(1, std::memory_order_relaxed);
  token_requests_.fetch_add(1, std::memory_order_relaxed);
  bool is_taken = try_acquire();
  while (!is_taken && !deadline.passed()) {
    notify();
    sched_yield();
    is_taken = try_acquire();
  }
  token_requests_.fetch_sub(1, std::memory_order_relaxed);
  acquiring_.fetch_sub(1, std::memory_order_relaxed);
  if (is_taken) visited();
  return is_taken;
}

Progress::Worked Progress::work_off(const std::atomic<bool>& stop) {
  const Deadline share = Deadline::after(kShare);
  Worked worked = Worked::nothing;
  wakes_.set_patient(true);
  while (worked != Worked::interrupted && turn(assert_held()) != 0) {
    const bool is_wanted = token_requests_.load(std::memory_order_relaxed) != 0;
    const bool is_over = is_wanted || stop.load(std::memory_order_relaxed) || share.passed();
    worked = is_over ? Worked::interrupted : Worked::some;
  }
  wakes_.set_patient(false);
  return worked;
}

Progress::Worked Progress::spin_for_device(const std::atomic<bool>& stop) {
  const Deadline share = Deadline::after(kShare);
  Worked worked = Worked::nothing;
  auto last = Clock::now();
  for (std::uint32_t turns = 1; needs_polling(assert_held()); ++turns) {
    const bool has_worked = turn(assert_held()) != 0;
    if (has_worked) worked = Worked::some;
    if (token_requests_.load(std::memory_order_relaxed) != 0 ||
        stop.load(std::memory_order_relaxed)) {
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

bool Progress::doze(pollfd extra) { return sleep(kShare, nullptr, &extra); }

void Progress::release() noexcept {
  const bool needs = needs_polling(assert_held());
  if (needed_polling_.load(std::memory_order_relaxed) != needs) {
    needed_polling_.store(needs, std::memory_order_relaxed);
  }
  release_unchanged();
}

void Progress::release_unchanged() noexcept {
  const bool needs = needed_polling_.load(std::memory_order_relaxed);
  trace_token(TokenEvent::released);
  held_.store(false, std::memory_order_release);
  announce_ended();
  if (needs && attendant_ != nullptr) attendant_->on_needs_polling();
}

void Progress::notify() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!sleeping_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void Progress::announce_ended() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_relaxed) == 0) return;
  const Lock lock(park_mutex_);
  park_condition_.notify_all();
}

bool Progress::sleep(std::chrono::nanoseconds limit,
                     const std::atomic<bool>* ended,
                     const pollfd* extra) {
  bool slept = false;
  sleeping_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool is_idle = turn(assert_held()) == 0;
  const bool has_ended = ended != nullptr && ended->load(std::memory_order_relaxed);
  if (is_idle && !has_ended && token_requests_.load(std::memory_order_relaxed) == 0) {
    descriptors_.assign(1, pollfd{wake_.get(), POLLIN, 0});
    if (extra != nullptr) descriptors_.push_back(*extra);
    slept = sources_.arm(assert_held(), descriptors_);
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
  parked_.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  {
    const Lock lock(park_mutex_);
    const Deadline until = earlier(deadline, Deadline::after(kLongestSleep));
    while (!ended.load(std::memory_order_acquire) && held() &&
           park_condition_.wait_until(park_mutex_, until)) {
    }
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace xylem::runtime
