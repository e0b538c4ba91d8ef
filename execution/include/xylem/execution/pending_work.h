// SPDX-License-Identifier: Apache-2.0
//
// PendingWork: the events for which executions wait and that no transport reports. These are the
// completion of work on devices, and the opening of gates.
#pragma once

#include "xylem/execution/execution.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace xylem::execution {

/// An execution does not end while it has pending work or a closed gate here: each counts in
/// Execution::outstanding.
class PendingWork {
 public:
  /// A slice that a device has not completed, or a copy of a point-to-point call (then `step` is
  /// kPointToPoint).
  struct Work {
    Execution* execution = nullptr;
    StepId step = kPointToPoint;
    std::uint32_t slice = 0;
    Ticket ticket{};
    HeldView view{};      ///< Read by the work, if view.views is set. Released after the work.
    bool evicts = false;  ///< The work copies a view of Run::views to its own place.
    /// False if the next work of the queue is another slice of the same piece, which completes at
    /// the same time.
    bool is_last = true;
  };

  bool empty() const noexcept { return count_ == 0; }
  /// Waits for a ticket of the execution's device. The work of a queue is added in the order in
  /// which it was enqueued.
  void add(const Work& work);
  /// Waits for the gate of an execution (OnDevice::gate), until `limit`.
  void add_gate(Execution& execution, Deadline limit);
  /// Calls `on_gate(execution, is_open)` for each gate that is open or late, and `on_work(work)`
  /// for each piece of work that has completed. Each is removed before its call, and the execution
  /// may end within the call. Returns the number of calls.
  template <typename OnGate, typename OnWork>
  unsigned poll(const OnGate& on_gate, const OnWork& on_work);
  /// Stops waiting for the gate of an execution, and cancels its work (Compute::cancel). The work
  /// stays pending until its tickets have completed.
  void cancel(Execution& execution);

 private:
  struct ClosedGate {
    Execution* execution = nullptr;
    Deadline limit;
  };
  /// The pending work of one queue of a device, oldest first.
  struct Queue {
    Compute* compute = nullptr;
    std::uint32_t number = 0;
    std::deque<Work> work;
  };

  /// Calls `handle` for a gate or work of an execution that is not pending any more.
  template <typename Handle>
  void end(Execution& execution, const Handle& handle) {
    execution.acquire();
    --execution.outstanding;
    --count_;
    handle();
    execution.release();
  }

  std::deque<Queue> queues_;
  std::vector<ClosedGate> gates_;
  std::uint32_t count_ = 0;  ///< Pieces of work in `queues_`, and closed gates.
};

template <typename OnGate, typename OnWork>
unsigned PendingWork::poll(const OnGate& on_gate, const OnWork& on_work) {
  unsigned ended = 0;
  for (std::size_t i = 0; i < gates_.size();) {
    const auto [execution, limit] = gates_[i];
    const OnDevice& device = execution->run.device;
    const bool is_open = device.compute->has_completed(device.gate);
    if (!is_open && !limit.passed()) {
      ++i;
      continue;
    }
    gates_.erase(gates_.begin() + static_cast<std::ptrdiff_t>(i));
    end(*execution, [&] { on_gate(*execution, is_open); });
    ++ended;
  }
  // on_work() may add work, and so queues. References to elements of a deque stay valid then, but
  // iterators do not.
  for (std::size_t i = 0; i < queues_.size(); ++i) {  // NOLINT(modernize-loop-convert)
    auto& [compute, number, pending] = queues_[i];
    while (!pending.empty() && compute->has_completed(pending.front().ticket)) {
      const Work work = pending.front();
      pending.pop_front();
      end(*work.execution, [&] { on_work(work); });
      ++ended;
    }
  }
  return ended;
}

}  // namespace xylem::execution
