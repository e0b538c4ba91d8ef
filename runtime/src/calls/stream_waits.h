// SPDX-License-Identifier: Apache-2.0
//
// StreamWaits: the streams that wait for the end of an operation (Work::block). Any thread may add
// one, even while the token holder ends the operation. Either the holder or the adding thread then
// opens the gate of the stream.
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
  /// Opens all gates, since the operation has ended. Gates that are added later are opened at once.
  void end() noexcept;
  /// Call this before the operation is used again. No other thread may use this object meanwhile.
  void renew() noexcept { first_.store(nullptr, std::memory_order_relaxed); }

 private:
  struct Wait {
    execution::Compute* compute = nullptr;
    execution::Ticket gate;
    Wait* next = nullptr;
  };
  static Wait ended;  ///< `first_` points to it after the end.

  std::atomic<Wait*> first_{nullptr};
};

}  // namespace xylem::runtime
