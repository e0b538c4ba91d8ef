// SPDX-License-Identifier: Apache-2.0
//
// How long to poll for what is about to come, before the wait is left to whoever waits.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

namespace xylem::runtime {

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
  /// How often to poll again after the first time.
  std::uint32_t polls() noexcept {
    constexpr std::uint32_t kMisses = 3, kSeldom = 16, kMostSeldom = 1024;
    if (misses_ < kMisses) return most_;
    if (misses_ == kMisses) {
      interval_ = kSeldom;
      calls_ = 0;
    }
    if (++calls_ < interval_) return 0;
    calls_ = 0;
    interval_ = std::min(2 * interval_, kMostSeldom);
    return most_;
  }
  /// Between two polls.
  void pause() const noexcept { yields_ ? static_cast<void>(sched_yield()) : relax(); }
  void learn(bool came) noexcept { misses_ = came ? 0 : misses_ + 1; }

 private:
  Patience(std::uint32_t most, bool yields) noexcept : most_(most), yields_(yields) {}

  std::uint32_t most_ = 0;
  bool yields_ = false;
  std::uint32_t misses_ = 0;  ///< In a row.
  std::uint32_t calls_ = 0;   ///< Since the last try.
  std::uint32_t interval_ = 0;
};

}  // namespace xylem::runtime
