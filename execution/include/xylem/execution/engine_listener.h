// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/execution.h"

#include <cstdint>

namespace xylem::execution {

/// Receives the reports of the engine: how executions end, and which messages and computations
/// fail.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// The execution has ended. None of its messages is posted any more, and the engine does not
  /// refer to it.
  virtual void on_ended(Execution& execution, Status outcome) = 0;
  /// A message to or from `peer` failed. The listener decides which executions fail. `peer` is
  /// kNone if the message is that of a point-to-point call.
  virtual void on_wire_error(Execution& execution, std::uint32_t peer, Code code) = 0;
  /// The execution's Compute has had a fault. The listener decides which executions fail.
  virtual void on_compute_error(Execution& execution, const Status& why) = 0;
  /// A message of a point-to-point call (step kPointToPoint) has ended without an error. The call
  /// may have failed before that.
  virtual void on_body(Message& message) = 0;
  /// A copy of a point-to-point call (Engine::post_copy) has ended without an error.
  virtual void on_copied(Execution& execution) = 0;
  /// The gate did not open within the limit of Engine::post_copy(). The copy has not begun. The
  /// listener must release its view, or make the copy itself (Engine::post_copy_before_gate). The
  /// execution does not end before this returns.
  virtual void on_late_gate(Execution& execution, const OnDevice::Copy& copy) = 0;
};

}  // namespace xylem::execution
