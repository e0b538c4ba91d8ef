// SPDX-License-Identifier: Apache-2.0
//
// Seats: reserves seats. A seat is a tag slot that a rank reserves for a communicator before the
// communicator is formed (seat.h).
#pragma once

#include "context.h"
#include "xylem/base/status.h"
#include "xylem/runtime/seat.h"

#include <memory>

namespace xylem::runtime {

struct Seats {
  /// See Runtime::take_seat().
  static Result<Seat> take(const std::shared_ptr<Context>& context);
  /// Call this when a group uses the seat. The destructor of `seat` then does not release it.
  static void keep(Seat& seat) noexcept { seat.keep(); }
};

}  // namespace xylem::runtime
