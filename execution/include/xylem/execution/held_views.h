// SPDX-License-Identifier: Apache-2.0
//
// HeldViews: the received messages that executions read where they arrived (transport/views.h).
//
// A view occupies a slot of its sender, so the sender may run out of slots. The steps that read the
// view may wait for other ranks, and those ranks may wait for the sender: a deadlock. To prevent
// this, views are *evicted*: the message is copied to its own place, and the view is released.
// Eviction does not change results. It happens before the thread sleeps, and when no view has been
// added or released for some time (set_eviction_delay()).
#pragma once

#include "xylem/base/clock.h"
#include "xylem/execution/engine_listener.h"
#include "xylem/execution/pending_work.h"

#include <chrono>
#include <cstdint>

namespace xylem::execution {

class HeldViews {
 public:
  HeldViews(EngineListener& listener, PendingWork& pending)
      : listener_(listener), pending_(pending) {}

  /// Sets the delay of evict_if_unchanged(): views are evicted if none has been added or ended for
  /// this time. The clock is read only every 32 rounds, so views are evicted after 64 rounds at the
  /// earliest. If all views are in device memory, the delay is 100 times as long. Such views occupy
  /// no slots. But each message in device memory is announced under one of a limited set of
  /// numbers, and a view occupies its number. If no number is free, a message goes through a slot
  /// or, if it is longer than a slot, waits.
  void set_eviction_delay(Clock::duration delay) noexcept { delay_ = delay; }

  bool empty() const noexcept { return count_ == 0; }
  /// Counts a view. Call this when the view has been added to Run::views or Run::arrived.
  void add(Run& run, const HeldView& view) noexcept;
  /// Releases a view that was added, and decrements the counts of views. Does nothing if `held` has
  /// no view. False if the sender has withdrawn the message: then call on_withdrawn().
  bool end(Run& run, HeldView& held) noexcept;
  /// Calls end() and, if the message was withdrawn, on_withdrawn().
  void release(Execution& execution, HeldView& held);
  /// Calls end() for the views that a slice of a step reads. If a sender has withdrawn one of the
  /// messages, returns the step that received it: then call on_withdrawn(). Otherwise returns
  /// kNone.
  StepId end_sources(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept;
  /// Calls end_sources() and, if a message was withdrawn, on_withdrawn().
  void release_sources(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  /// Releases the views of an execution that ends, except those that a device still uses.
  void release_all(Execution& execution);
  /// Handles a message that its sender has withdrawn while it was being read. The execution
  /// computes and sends nothing more, and ends when the listener has failed it. Do not call this
  /// while a slot is reserved, since the listener may cancel messages.
  void on_withdrawn(Execution& execution, StepId id);

  /// Evicts the views of the executions in a list (Execution::active_next). A view in device memory
  /// is released when its device has copied the message. Two kinds of views in device memory are
  /// not evicted: those that pending work of the device reads, and those of the only execution that
  /// has views, since a single execution does not run out of numbers of announced messages. True if
  /// any view is evicted.
  bool evict(Execution* first);
  /// Calls evict() if no view has been added or ended for the eviction delay. Call this once in
  /// each round.
  void evict_if_unchanged(Execution* first);
  /// Releases an evicted view. Call this when the device has copied the message to its own place.
  void on_copied(const PendingWork::Work& work);

 private:
  bool evict_view(Execution& execution, HeldView& held);

  EngineListener& listener_;
  PendingWork& pending_;
  std::uint32_t count_ = 0;
  std::uint32_t on_device_ = 0;     ///< How many of the `count_` views are in device memory.
  std::uint64_t changes_ = 0;       ///< How often a view was added or ended.
  std::uint64_t seen_changes_ = 0;  ///< The value of `changes_` in the last round.
  std::uint32_t unchanged_rounds_ = 0;
  Clock::time_point unchanged_since_{};  ///< The time 32 rounds after the last change.
  Clock::duration delay_ = std::chrono::microseconds(200);
};

}  // namespace xylem::execution
