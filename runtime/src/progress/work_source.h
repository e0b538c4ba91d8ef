// SPDX-License-Identifier: Apache-2.0
//
// WorkSource: a part of a job that the holder of the progress token must drive. A job has one list
// of sources, in the order of a turn. The token holder, a waiter that is about to sleep, and the
// progress thread use a job only through this list.
#pragma once

#include "progress/token.h"
#include "xylem/base/clock.h"

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace xylem::runtime {

class WorkSource {
 public:
  /// What a source needs from the threads of the process.
  enum class Need : std::uint8_t {
    nothing,
    turns,    ///< Some thread must make turns. The progress thread does, if no other thread does.
    turn_now  ///< Like `turns`, but the progress thread makes a turn at once, whatever
              ///< XYLEM_PROGRESS_THREAD says.
  };

  virtual ~WorkSource() = default;
  /// Does the work that is pending. Returns how much was done: 0 if nothing has happened.
  virtual unsigned turn(Token token) = 0;
  /// Any thread may call this.
  virtual Need need() const noexcept { return Need::nothing; }
  /// Called before the token holder sleeps, after it has announced its sleep. Appends the
  /// descriptors that wake it. False if the holder must not sleep, since there is something to do.
  virtual bool arm(Token /*token*/, std::vector<pollfd>& /*descriptors*/) { return true; }
  /// True if the source waits for a device, whose work signals no descriptor. False as long as
  /// WorkSources::note_device() has not been called.
  virtual bool needs_polling(Token /*token*/) const noexcept { return false; }
  /// Does work that depends on time, such as ending a connection that has been silent for too long.
  /// Called about every 50 ms while any source needs turns.
  virtual void tick(Token /*token*/, Clock::time_point /*now*/) {}
};

/// How many turns a job has made, and how many of them have handled nothing.
struct TurnCounts {
  std::uint64_t turns = 0, idle = 0;
};

/// The sources of one job. They must outlive the last use of this list.
class WorkSources {
 public:
  /// Appends a source to the list. Call this before a second thread uses the list.
  void add(WorkSource& source) { sources_.push_back(&source); }

  // Any thread may call these functions:
  WorkSource::Need need() const noexcept;
  /// Makes the next turn end with a tick.
  void request_tick() noexcept { is_tick_due_.store(true, std::memory_order_relaxed); }
  /// Call this when the job gets a device, before work is submitted to the device. Until
  /// then, needs_polling() is false, and takes no time.
  void note_device() noexcept { has_device_.store(true, std::memory_order_relaxed); }

  /// One turn of all sources, then the tick if one was requested.
  unsigned turn(Token token);
  const TurnCounts& turns(Token /*token*/) const noexcept { return turns_; }
  bool arm(Token token, std::vector<pollfd>& descriptors);
  bool needs_polling(Token token) const noexcept {
    return has_device_.load(std::memory_order_relaxed) && does_any_need_polling(token);
  }

 private:
  bool does_any_need_polling(Token token) const noexcept;

  std::vector<WorkSource*> sources_;
  TurnCounts turns_;
  std::atomic<bool> is_tick_due_{false};
  std::atomic<bool> has_device_{false};
};

}  // namespace xylem::runtime
