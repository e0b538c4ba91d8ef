// SPDX-License-Identifier: Apache-2.0
//
// HeldViews: the received messages that executions read where they arrived (transport/views.h).
//
// A view occupies a slot of its sender, which may run out of slots. The steps that read the view
// may wait for other ranks, and these may wait for that sender. So views are *evicted*: their bytes
// are copied to their own place, and the view is released. Results do not change. This happens
// before a thread sleeps, and when no view has been held or released for a while.
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

  /// Views are evicted if none has been added or ended for this long, and for at least 64 rounds,
  /// since the clock is read only every 32 rounds. If all of them are in device memory, the delay
  /// is 100 times as long. Such views occupy no slots, but they occupy numbers of announced
  /// messages. A message for which no number is free goes through a slot or, if it is longer than a
  /// slot, waits.
  void set_eviction_delay(Clock::duration delay) noexcept { delay_ = delay; }

  bool empty() const noexcept { return count_ == 0; }
  /// Counts a view that has been added to Run::views or Run::arrived.
  void add(Run& run, const HeldView& view) noexcept;
  /// Ends a view that was added, if the slice has one. False if the sender has withdrawn the
  /// message: then call on_withdrawn().
  bool end(Run& run, HeldView& held) noexcept;
  /// Calls end() and, if the message was withdrawn, on_withdrawn().
  void release(Execution& execution, HeldView& held);
  /// Ends the views that a slice of a step reads. Returns the step whose message the sender has
  /// withdrawn; then call on_withdrawn(). kNone if there is none.
  StepId end_sources(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept;
  /// Calls end_sources() and, if a message was withdrawn, on_withdrawn().
  void release_sources(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  /// Releases the views of an execution that ends, except those that a device still uses.
  void release_all(Execution& execution);
  /// Handles a message that its sender has withdrawn while it was being read. The execution
  /// computes and sends nothing more, and ends when the reason is known. Do not call this while a
  /// slot is reserved, since the listener may cancel messages.
  void on_withdrawn(Execution& execution, StepId id);

  /// Evicts the views of the executions in a list (Execution::active_next). A view in device memory
  /// is released when its device has copied it. Such a view stays if work of the device reads it
  /// already, or if only one execution has views: an execution that runs alone needs no more
  /// numbers of announced messages than it has. True if any view is evicted.
  bool evict(Execution* first);
  /// The same, if the views have not changed for the delay. Call this once each round. Reads the
  /// clock only now and then.
  void evict_if_unchanged(Execution* first);
  /// Call this when a device has copied an evicted view to its own place.
  void on_copied(const PendingWork::Work& work);

 private:
  bool evict_view(Execution& execution, HeldView& held);

  EngineListener& listener_;
  PendingWork& pending_;
  std::uint32_t count_ = 0;
  std::uint32_t on_device_ = 0;     ///< How many of these are in the memory of a device.
  std::uint64_t changes_ = 0;       ///< How often a view was added or ended.
  std::uint64_t seen_changes_ = 0;  ///< The value of `changes_` in the last round.
  std::uint32_t unchanged_rounds_ = 0;
  Clock::time_point unchanged_since_{};  ///< Read some rounds after the last change.
  Clock::duration delay_ = std::chrono::microseconds(200);
};

}  // namespace xylem::execution
