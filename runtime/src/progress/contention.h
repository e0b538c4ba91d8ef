// SPDX-License-Identifier: Apache-2.0
//
// Contention: detects whether other programs compute on the cores that this rank's threads use.
//
// If other programs compute there, a thread that polls uses up its share of the core. When its
// message arrives, the thread has to wait for the time slices of the other programs, although it
// has computed nothing. A thread that sleeps keeps its share, and the system runs it soon after it
// is woken (EEVDF, Stoica and Abdel-Wahab 1995, which Linux uses from version 6.6 on). So waiters
// sleep under contention. Without contention they poll, since polling reacts sooner.
//
// The sign of contention is lost time: a yield, or a few turns that find nothing to do, take as
// long as a time slice of another thread. The CPU quota of a cgroup has the same effect. A waiter
// that sleeps cannot observe lost time, so it makes a probe from time to time: it yields, and the
// yield returns at once if no other thread waits for the core. (Some versions of Linux from 6.6 on
// may continue a thread that yields, although others wait for the core. Contention is then detected
// too late, and its end too early.)
#pragma once

#include "xylem/base/clock.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace xylem::runtime {

class Contention {
 public:
  /// Contention begins after `losses` losses in a row. Use more than one loss where ranks share
  /// cores, since another rank may compute for a whole time slice.
  void set_losses_to_begin(unsigned losses) noexcept { losses_to_begin_ = losses; }

  /// Any thread may call this.
  bool is_present() const noexcept { return is_present_.load(std::memory_order_relaxed); }

  // The following functions are for the token holder.

  /// Reports how long a yield or some idle turns have taken. `now`: when they ended.
  void note(std::chrono::nanoseconds span, Clock::time_point now) noexcept;
  /// While there is contention: whether to make a probe now.
  bool wants_probe(Clock::time_point now) const noexcept { return now >= next_probe_; }
  /// Reports how long the yield of a probe has taken. `now`: when it ended.
  void note_probe(std::chrono::nanoseconds span, Clock::time_point now) noexcept;

 private:
  std::atomic<bool> is_present_{false};
  unsigned losses_to_begin_ = 1;
  unsigned losses_ = 0;       ///< Losses in a row.
  unsigned free_probes_ = 0;  ///< Probes in a row that lost no time.
  /// Time from a loss to the next probe. It grows while contention lasts or soon returns, since
  /// each loss costs a time slice.
  std::chrono::nanoseconds interval_{0};
  Clock::time_point next_probe_{};
  Clock::time_point ended_{};  ///< When contention ended last.
};

}  // namespace xylem::runtime
