// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include "xylem/execution/patience.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace xylem::runtime {

using execution::relax;
namespace {

using std::chrono::microseconds;

/// Turns between two looks at the clock while nothing happens.
constexpr std::uint32_t kTurnsPerLook = 32;
constexpr std::chrono::milliseconds kLongestSleep{50};
/// Of the progress thread, before it looks at other things.
constexpr std::chrono::milliseconds kShare{10};

/// Tells an idle waiter what to do next.
class Idleness {
 public:
  enum class Next : std::uint8_t { spin, yield, sleep };

  explicit Idleness(const WaitPolicy& policy) noexcept : policy_(policy) { reset(); }

  void reset() noexcept {
    turns_ = 0;
    next_ = policy_.spin.count() > 0    ? Next::spin
            : policy_.yield.count() > 0 ? Next::yield
                                        : Next::sleep;
  }
  /// Call after a turn in which nothing happened. `looked` is set when the clock was read.
  Next step(bool& looked) noexcept {
    looked = false;
    if (++turns_ % (next_ == Next::spin ? kTurnsPerLook : 4) != 0) return next_;
    looked = true;
    const auto now = Clock::now();
    if (turns_ <= kTurnsPerLook) since_ = now;
    const auto idle = now - since_;
    if (idle < policy_.spin) {
      next_ = Next::spin;
    } else if (idle < policy_.spin + policy_.yield || !policy_.sleep) {
      next_ = policy_.yield.count() == 0 ? Next::spin : Next::yield;
    } else {
      next_ = Next::sleep;
    }
    return next_;
  }

 private:
  const WaitPolicy& policy_;
  std::uint32_t turns_ = 0;
  Next next_ = Next::spin;
  Clock::time_point since_{};
};

}  // namespace

WaitPolicy WaitPolicy::make(WaitMode mode,
                            std::uint32_t cores,
                            std::uint32_t local_ranks) noexcept {
  constexpr auto kForever = std::chrono::hours(24 * 365);
  switch (mode) {
    case WaitMode::spin: return {kForever, {}, false};
    case WaitMode::yield: return {{}, kForever, false};
    case WaitMode::sleep: return {{}, {}, true};
    case WaitMode::automatic: break;
  }
  if (cores >= local_ranks) return {microseconds(200), microseconds(1000), true};
  return {{}, microseconds(1000), true};
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

bool Progress::wait(const std::atomic<bool>& ended, Deadline deadline) {
  Idleness idleness(policy_);
  while (!ended.load(std::memory_order_acquire)) {
    if (claims_.load(std::memory_order_relaxed) == 0 && try_acquire()) {
      visited();
      drive(ended, deadline);
      release();
      if (!ended.load(std::memory_order_acquire) && deadline.passed()) return false;
      continue;
    }
    bool looked = false;
    switch (idleness.step(looked)) {
      case Idleness::Next::spin: relax(); break;
      case Idleness::Next::yield: sched_yield(); break;
      case Idleness::Next::sleep: park(ended, deadline); break;
    }
    if (looked) {
      wanted_.fetch_add(1, std::memory_order_seq_cst);
      notify();
      wanted_.fetch_sub(1, std::memory_order_relaxed);
      if (deadline.passed()) return ended.load(std::memory_order_acquire);
    }
  }
  return true;
}

void Progress::drive(const std::atomic<bool>& ended, Deadline deadline) {
  Idleness idleness(policy_);
  while (!ended.load(std::memory_order_acquire) && claims_.load(std::memory_order_relaxed) == 0) {
    if (client_.turn() != 0) {
      idleness.reset();
      continue;
    }
    if (ended.load(std::memory_order_acquire)) return;
    bool looked = false;
    switch (idleness.step(looked)) {
      case Idleness::Next::spin: relax(); break;
      case Idleness::Next::yield: sched_yield(); break;
      case Idleness::Next::sleep:
        sleep(std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.left()));
        break;
    }
    if (looked && deadline.passed()) return;
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
  while (client_.turn() != 0) {
    worked = Worked::some;
    const bool is_wanted = wanted_.load(std::memory_order_relaxed) != 0;
    if (is_wanted || stop.load(std::memory_order_relaxed) || share.passed())
      return Worked::interrupted;
  }
  return worked;
}

bool Progress::doze(pollfd extra) { return sleep(kShare, &extra); }

void Progress::release() noexcept {
  client_.on_release();
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

/// Announces the sleep first and looks for work after it, while notify() publishes work first and
/// looks for a sleeper after it: one of the two sees the other.
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
