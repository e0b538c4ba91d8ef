// SPDX-License-Identifier: Apache-2.0
//
// How long to poll for what is about to come, before the wait is left to whoever waits.
#pragma once

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
/// tried now and then.
class Patience {
 public:
  /// `most` polls; 0 where ranks share cores.
  explicit Patience(std::uint32_t most = 0) noexcept : most_(most) {}

  /// How often to poll again after the first time.
  std::uint32_t polls() noexcept {
    constexpr std::uint32_t kMisses = 3, kSeldom = 16;
    is_tried_ = misses_ < kMisses || ++calls_ % kSeldom == 0;
    return is_tried_ ? most_ : 0;
  }
  void learn(bool came) noexcept {
    if (came) {
      misses_ = 0;
    } else if (is_tried_) {
      ++misses_;
    }
  }

 private:
  std::uint32_t most_;
  std::uint32_t misses_ = 0;  ///< In a row.
  std::uint32_t calls_ = 0;
  bool is_tried_ = false;
};

}  // namespace xylem::runtime
