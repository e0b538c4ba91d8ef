// SPDX-License-Identifier: Apache-2.0
//
// Seats: takes seats. A seat is the tag slot of a communicator that is formed later (seat.h).
#pragma once

#include "context.h"
#include "xylem/base/status.h"
#include "xylem/runtime/seat.h"

#include <memory>

namespace xylem::runtime {

struct Seats {
  /// See Runtime::take_seat().
  static Result<Seat> take(const std::shared_ptr<Context>& context);
  /// Call this when the seat belongs to a group: its handle does not release it then.
  static void keep(Seat& seat) noexcept { seat.keep(); }
};

}  // namespace xylem::runtime
