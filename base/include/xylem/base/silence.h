// SPDX-License-Identifier: Apache-2.0
//
// Silence: detects that the host at the other end of a TCP connection no longer answers. A stopped
// process is not silent, since its kernel still acknowledges data. A host without power, or behind
// a failed network, is.
#pragma once

#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>

namespace xylem {

/// Observes one connection; call it a few times a second. Not thread-safe.
class Silence {
 public:
  /// A host is silent if it has left data unacknowledged for longer than this.
  static constexpr std::chrono::seconds kLongest{5};

  /// Whether the host has been silent for too long. `socket` is a connected TCP socket.
  bool is_too_long(int socket, Clock::time_point now) noexcept;

 private:
  Clock::time_point since_ = Clock::time_point::max();
  std::uint64_t acknowledged_ = 0;
};

}  // namespace xylem
