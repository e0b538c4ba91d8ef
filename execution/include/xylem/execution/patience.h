// SPDX-License-Identifier: Apache-2.0
//
// How long to poll for what is about to come, before the wait is left to whoever waits.
#pragma once

#include "xylem/base/clock.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace xylem::execution {

/// Tells the processor that this is a loop that waits.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Where peers call at the same time, what they send is there within a moment, and polling for that
/// moment is quickest. Where they do not, polling only delays the caller: after a few misses it is
/// tried now and then, and ever more seldom.
///
/// Where ranks share cores, what is about to come may come from one that has no core yet: the poll
/// is then to let others run.
class Patience {
 public:
  /// Not to poll.
  Patience() noexcept = default;
  static Patience spinning() noexcept {
    constexpr std::uint32_t kPolls = 64;  // A few microseconds.
    return {kPolls, false};
  }
  static Patience yielding() noexcept {
    constexpr std::uint32_t kPolls = 8;  // Of one or two switches each.
    return {kPolls, true};
  }

  /// One that has learnt nothing yet.
  Patience fresh() const noexcept { return {most_, yields_}; }
  /// Looks whether `take` has it, and again for a while; whether it has.
  template <typename Take>
  bool await(const Take& take) {
    if (take()) {
      regain();
      return true;
    }
    std::uint32_t polls = allowed();
    if (polls == 0) return false;
    // The others may keep a core for long; what takes longer than this is not worth waiting for.
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
  Patience(std::uint32_t most, bool yields) noexcept : most_(most), yields_(yields) {}

  /// How often to look again.
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
  std::uint32_t misses_ = 0;  ///< In a row.
  std::uint32_t calls_ = 0;   ///< Since the last try.
  std::uint32_t interval_ = kSeldom;
};

}  // namespace xylem::execution
