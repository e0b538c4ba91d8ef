// SPDX-License-Identifier: Apache-2.0
#include "calls/stream_waits.h"

#include <memory>

namespace xylem::runtime {

constinit StreamWaits::Wait StreamWaits::ended{};

void StreamWaits::add(execution::Compute& compute, execution::Ticket gate) {
  auto wait = std::make_unique<Wait>(Wait{&compute, gate, first_.load(std::memory_order_acquire)});
  while (wait->next != &ended) {
    if (first_.compare_exchange_weak(wait->next, wait.get(), std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      [[maybe_unused]] Wait* const kept = wait.release();  // end() deletes it.
      return;
    }
  }
  compute.open(gate);
}

void StreamWaits::end() noexcept {
  Wait* next = first_.exchange(&ended, std::memory_order_acq_rel);
  while (next != nullptr && next != &ended) {
    const std::unique_ptr<Wait> wait(next);
    wait->compute->open(wait->gate);
    next = wait->next;
  }
}

}  // namespace xylem::runtime
