// SPDX-License-Identifier: Apache-2.0
//
// How long to poll for messages that are about to arrive, before waiting is left to the caller.
#pragma once

#include "xylem/base/clock.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace xylem::execution {

/// Tells the processor that this is a waiting loop.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// If peers call at the same time, their messages arrive within moments, and polling for these
/// moments is quickest. If they do not, polling only delays the caller. So after a few misses,
/// polling is tried only now and then, less and less often.
///
/// If ranks share cores, the sender of the awaited message may not be running. Then each poll
/// yields the core.
class PollBudget {
 public:
  /// Does not poll.
  PollBudget() noexcept = default;
  static PollBudget spinning() noexcept {
    constexpr std::uint32_t kPolls = 64;  // A few microseconds.
    return {kPolls, false};
  }
  static PollBudget yielding() noexcept {
    constexpr std::uint32_t kPolls = 8;  // Each takes one or two context switches.
    return {kPolls, true};
  }

  /// A PollBudget with the same limits, but without what this one has learnt.
  PollBudget fresh() const noexcept { return {most_, yields_}; }
  /// Calls `take` until it returns true, for a limited time. Returns the result of the last call.
  template <typename Take>
  bool await(const Take& take) {
    if (take()) {
      regain();
      return true;
    }
    std::uint32_t polls = allowed();
    if (polls == 0) return false;
    // Other threads may occupy the core for long, so polling stops after this time.
    constexpr std::chrono::microseconds kLongest{50};
    const auto end = yields_ ? Clock::now() + kLongest : Clock::time_point::max();
    bool came = false, is_late = false;
    for (; polls > 0 && !came && !is_late; --polls) {
      yields_ ? static_cast<void>(sched_yield()) : relax();
      came = take();
      is_late = yields_ && Clock::now() > end;
    }
    if (came && !is_late) {
      regain();
    } else {
      ++misses_;
    }
    return came;
  }

 private:
  PollBudget(std::uint32_t most, bool yields) noexcept : most_(most), yields_(yields) {}

  /// How many times to poll now.
  std::uint32_t allowed() noexcept {
    constexpr std::uint32_t kMisses = 3, kMostSeldom = 1024;
    if (misses_ < kMisses) return most_;
    if (++calls_ < interval_) return 0;
    calls_ = 0;
    interval_ = std::min(2 * interval_, kMostSeldom);
    return most_;
  }
  void regain() noexcept {
    misses_ = calls_ = 0;
    interval_ = kSeldom;
  }

  static constexpr std::uint32_t kSeldom = 16;

  std::uint32_t most_ = 0;
  bool yields_ = false;
  std::uint32_t misses_ = 0;  ///< Number of consecutive attempts without a message.
  std::uint32_t calls_ = 0;   ///< Number of calls since the last attempt to poll.
  std::uint32_t interval_ = kSeldom;
};

}  // namespace xylem::execution
