// SPDX-License-Identifier: Apache-2.0
//
// The monotonic clock, and deadlines measured with it. Nothing in Xylem waits without a Deadline.
#pragma once

#include "xylem/base/api.h"

#include <chrono>
#include <cstdint>

namespace xylem {

using Clock = std::chrono::steady_clock;

/// A point on the monotonic clock after which waiting ends with `timed_out`.
class XYLEM_API Deadline {
 public:
  static Deadline after(Clock::duration wait) noexcept {
    const auto now = Clock::now();
    return Deadline(wait > Clock::time_point::max() - now ? Clock::time_point::max() : now + wait);
  }
  static Deadline at(Clock::time_point point) noexcept { return Deadline(point); }

  bool passed() const noexcept { return Clock::now() >= point_; }
  /// Time left; never negative.
  Clock::duration left() const noexcept {
    const auto now = Clock::now();
    return now >= point_ ? Clock::duration::zero() : point_ - now;
  }
  /// Time left in milliseconds, for poll() and epoll_wait(); rounded up so that a waiter never
  /// spins with a time-out of zero.
  int left_ms() const noexcept;
  Clock::time_point point() const noexcept { return point_; }
  /// The earlier of two deadlines.
  friend Deadline earlier(Deadline a, Deadline b) noexcept { return a.point_ < b.point_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point point) noexcept : point_(point) {}
  Clock::time_point point_;
};

}  // namespace xylem
