// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/copy.h"
#include "xylem/execution/execution.h"
#include "xylem/transport/views.h"

#include <memory>

namespace xylem::execution {

/// A slot of shared memory for one slice, from which several sends of a cast can send it. The slice
/// is written once, and all receivers read it. Write it to memory(), or by fill(); then commit()
/// sends it. Otherwise the destructor abandons the slot. An execution can have one reservation at a
/// time, and only releasing views may come between reserve() and commit().
class Reservation {
 public:
  /// Reserves a slot for a slice of the sends of a step's cast. The slot serves all sends of the
  /// cast that can issue this slice now. Unless `maker` is kNone, this slice of the step `maker`
  /// counts as complete.
  static Reservation reserve(Execution& execution,
                             const ProgramStep& step,
                             StepId maker,
                             std::uint32_t slice);

  /// True if there is a slot that has not been committed.
  explicit operator bool() const noexcept { return views_ != nullptr; }
  /// True if there is no slot now, and only this send would have used it. (If there is no slot for
  /// several peers together, there may still be one for each of them.)
  bool must_wait(StepId send) const noexcept {
    const auto& sends = execution_->run.reserved_sends;
    return room_ == transport::ReserveResult::retry_later && sends.size() == 1 &&
           sends.front() == send;
  }
  std::byte* memory() const noexcept { return slot_.memory; }
  bool non_temporal() const noexcept {
    return slot_.non_temporal;
  }  ///< As in transport::Reservation.
  /// As Views::fill().
  void fill(const void* data, CopyTarget also) const noexcept { views_->fill(data, also); }
  /// Sends the slice. It may be read at memory() until the next call of the transport.
  void commit();
  /// Returns the slot, if there is one that has not been committed.
  void abandon() noexcept { views_.reset(); }

 private:
  struct Abandon {
    void operator()(transport::Views* views) const noexcept { views->abandon(); }
  };

  Reservation(Execution& execution, std::uint32_t slice) : execution_(&execution), slice_(slice) {}

  Execution* execution_ = nullptr;  ///< Run::reserved_sends lists the sends.
  std::uint32_t slice_ = 0;
  transport::ReserveResult room_ = transport::ReserveResult::use_send;
  std::unique_ptr<transport::Views, Abandon> views_;
  transport::Reservation slot_;
};

}  // namespace xylem::execution
