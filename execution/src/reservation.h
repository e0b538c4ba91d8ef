// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/copy.h"
#include "xylem/execution/execution.h"
#include "xylem/transport/views.h"

#include <memory>

namespace xylem::execution {

/// A slot of shared memory for one slice, from which several sends of a cast can send the slice.
/// The slice is written once, and all receivers read it. Write the slice to memory(), or by fill();
/// then call commit() to send it. Without commit(), the destructor abandons the slot. An execution
/// can have only one reservation at a time. Between reserve() and commit(), the only permitted call
/// of the transport is the release of views.
class Reservation {
 public:
  /// Reserves a slot for a slice of the sends of a step's cast. The slot serves all sends of the
  /// cast that can issue this slice now. If `maker` is not kNone, the slice of the step `maker`
  /// counts as completed, since it is about to be written to the slot.
  static Reservation reserve(Execution& execution,
                             const ProgramStep& step,
                             StepId maker,
                             std::uint32_t slice);

  /// True if there is a slot that has not been committed.
  explicit operator bool() const noexcept { return views_ != nullptr; }
  /// True if no slot is free now, and only the step `send` would have used it. (If no slot is free
  /// for several peers together, one may still be free for each of them.)
  bool must_wait(StepId send) const noexcept {
    const auto& sends = execution_->run.reserved_sends;
    return result_ == transport::ReserveResult::retry_later && sends.size() == 1 &&
           sends.front() == send;
  }
  std::byte* memory() const noexcept { return slot_.memory; }
  /// As in transport::Reservation.
  bool non_temporal() const noexcept { return slot_.non_temporal; }
  /// See Views::fill().
  void fill(const void* data, CopyTarget also) const noexcept { views_->fill(data, also); }
  /// Sends the slice. The slice may be read at memory() until the next call of the transport.
  void commit();
  /// Returns the slot to the transport, if there is a slot that has not been committed.
  void abandon() noexcept { views_.reset(); }

 private:
  struct Abandon {
    void operator()(transport::Views* views) const noexcept { views->abandon(); }
  };

  Reservation(Execution& execution, std::uint32_t slice) : execution_(&execution), slice_(slice) {}

  Execution* execution_ = nullptr;  ///< Run::reserved_sends lists the sends.
  std::uint32_t slice_ = 0;
  transport::ReserveResult result_ = transport::ReserveResult::use_send;
  std::unique_ptr<transport::Views, Abandon> views_;
  transport::Reservation slot_;
};

}  // namespace xylem::execution
