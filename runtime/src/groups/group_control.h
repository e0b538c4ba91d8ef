// SPDX-License-Identifier: Apache-2.0
//
// GroupControl: the functions of a group that only the token holder may call (Group::control()).
// They concern the health and the failure of the group, and serve its collectives and messages.
#pragma once

#include "calls/operation.h"
#include "failure/situation.h"
#include "xylem/base/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace xylem::runtime {

class CallHistory;
class PointToPoint;

class GroupControl {
 public:
  /// OK while the group can make calls, that is, until it has failed or this rank has left it.
  virtual const Status& health() const noexcept = 0;
  /// Fails the group on this rank only: all its pending and later operations end with this error.
  virtual void poison(const Status& why) = 0;
  /// Fails the group on this rank, and publishes the error, so that the group fails on all ranks.
  virtual void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) = 0;
  /// Reports that a wire has failed. Half a second later, `why` is announced. If the control plane
  /// reports in this time that the rank at the other end died, the group fails with the death
  /// instead (failure_detector.h).
  virtual void suspect(Status why) = 0;
  /// Whether rank `rank` of the group has left the job.
  virtual bool has_left(std::uint32_t rank) const noexcept = 0;
  /// The number of operations that have been launched and have not ended.
  virtual std::uint32_t pending() const noexcept = 0;
  /// Makes an operation for a call that was begun without an operation, and activates it in the
  /// engine.
  virtual Operation& begin_operation() = 0;
  /// Turns the spare operation of the job (OperationPool::spare) into an operation of this group,
  /// and activates it in the engine.
  virtual Operation& adopt_spare() = 0;
  /// Call this when a collective has been numbered.
  virtual void on_call(const CallRecord& record) = 0;
  /// Call this when a note of rank `from` of the group has arrived (PointToPoint::send_note()).
  virtual void on_note(std::uint32_t from, std::span<const std::byte> bytes) = 0;
  virtual CallHistory& history() noexcept = 0;
  virtual PointToPoint& messages() noexcept = 0;

 protected:
  ~GroupControl() = default;
};

}  // namespace xylem::runtime
