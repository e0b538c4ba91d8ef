// SPDX-License-Identifier: Apache-2.0
//
// PendingWork: the events for which executions wait and which no transport reports. These are the
// completion of work on devices, and the opening of gates. PendingWork polls for them.
#pragma once

#include "xylem/execution/execution.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace xylem::execution {

/// Polls for pending work and closed gates. An execution does not end while it has pending work or
/// a closed gate: each of them counts in Execution::outstanding.
class PendingWork {
 public:
  /// A slice that a device has not completed, or a copy of a point-to-point call (then `step` is
  /// kPointToPoint).
  struct Work {
    Execution* execution = nullptr;
    StepId step = kPointToPoint;
    std::uint32_t slice = 0;
    Ticket ticket{};
    HeldView view{};      ///< If view.views is set: the work reads it. Released after the work.
    bool evicts = false;  ///< The work copies a view of Run::views to its own place.
    /// False if the next work of the queue is another slice of the same piece, which completes at
    /// the same time.
    bool is_last = true;
  };

  bool empty() const noexcept { return count_ == 0; }
  /// Adds work that has been enqueued on the execution's device. Add the work of a queue in the
  /// order in which it was enqueued.
  void add(const Work& work);
  /// Adds the closed gate of an execution (OnDevice::gate). poll() reports the gate when it has
  /// opened, or when `limit` has passed.
  void add_gate(Execution& execution, Deadline limit);
  /// Calls `on_gate(execution, is_open)` for each gate that has opened or whose limit has passed,
  /// and `on_work(work)` for each piece of work that has completed. Each gate and each piece of
  /// work is removed before its callback, and the callback may end the execution. Returns the
  /// number of callbacks.
  template <typename OnGate, typename OnWork>
  unsigned poll(const OnGate& on_gate, const OnWork& on_work);
  /// Removes the gate of an execution, and cancels its work (Compute::cancel). The work stays
  /// pending until its tickets have completed.
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

  /// Decrements the counts for a gate or a piece of work that has ended, and calls `handle`. The
  /// execution stays alive until `handle` has returned.
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
  // on_work() may add work, and thereby queues. An insertion at the end of a deque keeps references
  // to its elements valid, but not iterators.
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
