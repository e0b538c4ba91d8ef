// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/execution.h"

#include <cstdint>

namespace xylem::execution {

/// Receives the reports of the engine: how executions end, and which messages, copies and
/// computations complete or fail.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// The execution has ended, and the engine does not refer to it. None of its messages is posted,
  /// unless Engine::finish() was called while some were.
  virtual void on_ended(Execution& execution, Status outcome) = 0;
  /// A message to or from `peer` has failed. The listener decides which executions fail. `peer` is
  /// kNone if the message belongs to a point-to-point call.
  virtual void on_wire_error(Execution& execution, std::uint32_t peer, Code code) = 0;
  /// The execution's Compute has a fault (Compute::health()). The listener decides which executions
  /// fail.
  virtual void on_compute_error(Execution& execution, const Status& why) = 0;
  /// A message of a point-to-point call (step kPointToPoint) has completed without an error. The
  /// call itself may have failed before.
  virtual void on_body(Message& message) = 0;
  /// A copy of a point-to-point call (Engine::post_copy) has completed without an error.
  virtual void on_copied(Execution& execution) = 0;
  /// The gate has not opened within the limit of Engine::post_copy(), and the copy has not begun.
  /// The listener must release `copy.view`, or enqueue a copy at once
  /// (Engine::post_copy_before_gate). The execution does not end before this function has returned.
  virtual void on_late_gate(Execution& execution, const OnDevice::Copy& copy) = 0;
};

}  // namespace xylem::execution
