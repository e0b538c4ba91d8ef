// SPDX-License-Identifier: Apache-2.0
//
// A resource of the simulated machines, such as a core or a port of a network, that serves one
// slice after the other in virtual time.
#pragma once

#include <algorithm>

namespace xylem::collectives {

class Resource {
 public:
  /// The earliest time, not before `ready`, at which the resource is free.
  double start(double ready) const noexcept { return std::max(free_, ready); }
  /// Uses the resource from start(ready) on, for `duration`. Returns the time at which the resource
  /// is free again.
  double occupy(double ready, double duration) noexcept { return free_ = start(ready) + duration; }

 private:
  double free_ = 0;
};

/// Microseconds to transfer `bytes` at `rate_GBps` (10^9 bytes per second).
inline double transfer_us(double bytes, double rate_GBps) noexcept {
  constexpr double kBytesPerUsPerGBps = 1000;
  return bytes / (rate_GBps * kBytesPerUsPerGBps);
}

}  // namespace xylem::collectives
