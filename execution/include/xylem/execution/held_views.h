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
  /// since the clock is read once in 32. If all of them are in device memory, it takes 100 times as
  /// long: they occupy no slots, but numbers of announced messages. A message that gets no number
  /// goes through slots, or waits if it is longer.
  void set_eviction_delay(Clock::duration delay) noexcept { delay_ = delay; }

  bool empty() const noexcept { return count_ == 0; }
  /// Counts a view that has been added to Run::views or Run::arrived.
  void add(Run& run, const HeldView& view) noexcept;
  /// Ends a view that was added, if the slice has one. False if the sender has withdrawn the
  /// message. Pass that to on_withdrawn().
  bool end(Run& run, HeldView& held) noexcept;
  /// Does both: ends a view, and handles a withdrawn message.
  void release(Execution& execution, HeldView& held);
  /// Ends the views that a slice of a step reads. Returns the step whose message the sender has
  /// withdrawn, to be passed to on_withdrawn(); kNone if there is none.
  StepId end_sources(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept;
  /// Does both, for the views that a slice of a step reads.
  void release_sources(Execution& execution, const ProgramStep& step, std::uint32_t slice);
  /// Releases the views of an execution that ends, except those that a device still reads.
  void release_all(Execution& execution);
  /// The sender has withdrawn a message while it was read. The execution computes and sends nothing
  /// more, and ends when the reason is known. No slot must be reserved, since the listener may
  /// cancel messages.
  void on_withdrawn(Execution& execution, StepId id);

  /// Evicts the views of the executions in a list (Execution::active_next). A view in device memory
  /// is released when its device has copied it. It stays if work of the device reads it already, or
  /// if only one execution has views: an execution that runs alone needs no more numbers of
  /// announced messages than it has. True if any view is evicted.
  bool evict(Execution* first);
  /// The same, if the views have not changed for the delay. Call this once each round. Reads the
  /// clock only now and then.
  void evict_if_unchanged(Execution* first);
  /// The device has copied a view that is evicted to its own place.
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
