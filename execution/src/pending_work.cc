// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/pending_work.h"

#include <algorithm>

namespace xylem::execution {

void PendingWork::add(const Work& work) {
  ++work.execution->outstanding;
  ++count_;
  Compute* const compute = work.execution->run.device.compute;
  const auto is_its = [&](const Queue& queue) {
    return queue.compute == compute && queue.number == work.ticket.queue;
  };
  const auto found = std::ranges::find_if(queues_, is_its);
  Queue& queue =
      found != queues_.end() ? *found : queues_.emplace_back(Queue{compute, work.ticket.queue, {}});
  queue.work.push_back(work);
}

void PendingWork::add_gate(Execution& execution, Deadline limit) {
  ++execution.outstanding;
  ++count_;
  gates_.push_back({&execution, limit});
}

void PendingWork::cancel(Execution& execution) {
  for (const Queue& queue : queues_) {
    for (const Work& work : queue.work) {
      if (work.execution == &execution) queue.compute->cancel(work.ticket);
    }
  }
  const auto is_its_gate = [&](const ClosedGate& closed) { return closed.execution == &execution; };
  const auto gates = static_cast<std::uint32_t>(std::erase_if(gates_, is_its_gate));
  execution.outstanding -= gates;
  count_ -= gates;
}

}  // namespace xylem::execution
