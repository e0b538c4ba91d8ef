// SPDX-License-Identifier: Apache-2.0
//
// Silence: whether the host at the other end of a TCP connection still answers. A stopped process
// is not silent, as its kernel answers for it; a host without power, or behind a network that has
// failed, is.
#pragma once

#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>

namespace xylem {

/// Looks at one connection, a few times a second. One thread at a time.
class Silence {
 public:
  /// How long a host may leave what was sent to it unanswered.
  static constexpr std::chrono::seconds kLongest{5};

  /// True if it has been for longer. `socket` is a connected TCP socket.
  bool is_too_long(int socket, Clock::time_point now) noexcept;

 private:
  Clock::time_point since_ = Clock::time_point::max();
  std::uint64_t acknowledged_ = 0;
};

}  // namespace xylem
