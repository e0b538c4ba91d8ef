// SPDX-License-Identifier: Apache-2.0
//
// StreamWaits: the streams that wait for the end of an operation (Work::block). Any thread may add
// one, while the token holder may be ending the operation: either the holder opens the gate of the
// stream, or the thread that adds it does.
#pragma once

#include "xylem/execution/compute.h"

#include <atomic>

namespace xylem::runtime {

class StreamWaits {
 public:
  StreamWaits() noexcept = default;
  StreamWaits(const StreamWaits&) = delete;
  StreamWaits& operator=(const StreamWaits&) = delete;
  ~StreamWaits() { end(); }

  /// Opens a gate of Compute::gate_before() when the operation ends, or now if it has ended. Any
  /// thread may call this.
  void add(execution::Compute& compute, execution::Ticket gate);
  /// Opens all gates. The operation has ended, so later gates are opened at once.
  void end() noexcept;
  /// For an operation that is used again. No other thread may call a function meanwhile.
  void renew() noexcept { first_.store(nullptr, std::memory_order_relaxed); }

 private:
  struct Wait {
    execution::Compute* compute = nullptr;
    execution::Ticket gate;
    Wait* next = nullptr;
  };
  static Wait ended;  ///< Stands in `first_` after the end.

  std::atomic<Wait*> first_{nullptr};
};

}  // namespace xylem::runtime
