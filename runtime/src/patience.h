// SPDX-License-Identifier: Apache-2.0
//
// How long to poll for what is about to come, before the wait is left to whoever waits.
#pragma once

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
class Patience {
 public:
  /// `most` polls; 0 where ranks share cores.
  explicit Patience(std::uint32_t most = 0) noexcept : most_(most) {}

  /// One that has learnt nothing yet.
  Patience fresh() const noexcept { return Patience(most_); }
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
  void learn(bool came) noexcept { misses_ = came ? 0 : misses_ + 1; }

 private:
  std::uint32_t most_;
  std::uint32_t misses_ = 0;  ///< In a row.
  std::uint32_t calls_ = 0;   ///< Since the last try.
  std::uint32_t interval_ = 0;
};

}  // namespace xylem::runtime
