// SPDX-License-Identifier: Apache-2.0
//
// PollBudget: how long a call polls for messages that are about to arrive, before it returns to its
// caller.
#pragma once

#include "xylem/base/clock.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace xylem::execution {

/// Hints to the processor that the thread is in a spin loop.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// If peers make the same call at the same time, their messages arrive within microseconds, and
/// polling is the fastest way to receive them. Otherwise polling only delays the caller. So after
/// three consecutive attempts without a message, only every 16th call polls. This interval doubles
/// with each attempt, up to 1024 calls, until an attempt succeeds.
///
/// If several ranks share a core, the sender of the message may not be running. Use yielding()
/// then: it yields the core before each poll.
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

  /// A PollBudget with the same limits, but with reset counts of misses and calls.
  PollBudget fresh() const noexcept { return {most_, yields_}; }
  /// Calls `take` until it returns true, for a limited time. Returns the result of the last call of
  /// `take`.
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
  std::uint32_t calls_ = 0;   ///< Number of calls of await() since the last attempt to poll.
  std::uint32_t interval_ = kSeldom;
};

}  // namespace xylem::execution
