// SPDX-License-Identifier: Apache-2.0
//
// The monotonic clock, and deadlines measured with it. Nothing in Xylem waits without a Deadline.
#pragma once

#include "xylem/base/api.h"

#include <chrono>
#include <cstdint>

namespace xylem {

using Clock = std::chrono::steady_clock;

/// A point in time on the monotonic clock. A wait that lasts until this point fails with
/// Code::timed_out.
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
  /// Time left in milliseconds, for poll() and epoll_wait(). Rounded up: less than 1 ms becomes 1,
  /// not 0, so that a waiter does not spin.
  int left_ms() const noexcept;
  Clock::time_point point() const noexcept { return point_; }
  /// The earlier of two deadlines.
  friend Deadline earlier(Deadline a, Deadline b) noexcept { return a.point_ < b.point_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point point) noexcept : point_(point) {}
  Clock::time_point point_;
};

}  // namespace xylem
