// SPDX-License-Identifier: Apache-2.0
//
// StreamWaits: the streams that wait for the end of an operation (Work::block). Any thread may add
// a stream, even while the token holder ends the operation. Then either the token holder or the
// adding thread opens the gate of the stream.
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

  /// Opens a gate that Compute::gate_before() has returned: when the operation ends, or at once if
  /// it has ended. Any thread may call this.
  void add(execution::Compute& compute, execution::Ticket gate);
  /// Opens all gates, since the operation has ended. Gates that are added later are opened at once.
  void end() noexcept;
  /// Call this before the operation is reused. No other thread may use this object meanwhile.
  void renew() noexcept { first_.store(nullptr, std::memory_order_relaxed); }

 private:
  struct Wait {
    execution::Compute* compute = nullptr;
    execution::Ticket gate;
    Wait* next = nullptr;
  };
  static Wait ended;  ///< A marker: `first_` points to it after end().

  std::atomic<Wait*> first_{nullptr};
};

}  // namespace xylem::runtime
