// SPDX-License-Identifier: Apache-2.0
//
// GroupControl: the side of a group that belongs to the token holder (Group::control()): whether
// the group is well, how it fails, and what its collectives and messages need of it.
#pragma once

#include "calls/operation.h"
#include "failure/situation.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <optional>
#include <string>

namespace xylem::runtime {

class CallHistory;
class PointToPoint;

class GroupControl {
 public:
  /// OK while the group can make calls. It has then neither failed nor been left.
  virtual const Status& health() const noexcept = 0;
  /// Fails the group here: all its pending and later operations end with this error.
  virtual void poison(const Status& why) = 0;
  /// Fails the group here and on all ranks.
  virtual void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) = 0;
  /// Announces that a wire failed. Waits a moment first: if the control plane reports meanwhile
  /// that the rank died, the death is announced instead, since it says more (failure_detector.h).
  virtual void suspect(Status why) = 0;
  /// Whether this rank of the group has left the job.
  virtual bool has_left(std::uint32_t rank) const noexcept = 0;
  /// Operations that have been launched and have not ended.
  virtual std::uint32_t pending() const noexcept = 0;
  /// Makes an operation for a call that has begun without one, and activates it in the engine.
  virtual Operation& begin_operation() = 0;
  /// Makes the spare operation of the job (OperationPool::spare) one of this group, and activates
  /// it.
  virtual Operation& adopt_spare() = 0;
  /// A collective has been numbered.
  virtual void on_call(const CallRecord& record) = 0;
  virtual CallHistory& history() noexcept = 0;
  virtual PointToPoint& messages() noexcept = 0;

 protected:
  ~GroupControl() = default;
};

}  // namespace xylem::runtime
