// SPDX-License-Identifier: Apache-2.0
//
// GateWaits: which messages in device memory wait for the streams of their receives.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xylem::runtime {

/// A message may arrive before the stream of its receive has come to it, that is, before the gate
/// of the receive has opened. Then it can wait for the gate for a short time. After a wait in vain,
/// the next such message from the same rank does not wait. After further waits in vain, the next 3,
/// 7, 15 and then always 31 do not wait, until a gate opens in time. There is one object for each
/// sender. For one thread at a time.
class GateWaits {
 public:
  /// Whether the next such message waits.
  bool may_wait() const noexcept { return left_ == 0; }
  /// Call this when a gate did not open in time, or when a message did not wait for its gate.
  void note_failed_wait() noexcept {
    if (left_ != 0) {
      --left_;
    } else {
      skipped_ = std::min(2 * skipped_ + 1, kMostSkipped);
      left_ = skipped_;
    }
  }
  void note_in_time() noexcept { skipped_ = left_ = 0; }

 private:
  static constexpr std::uint32_t kMostSkipped = 31;

  std::uint32_t skipped_ = 0;  ///< How many messages do not wait after the last wait in vain.
  std::uint32_t left_ = 0;     ///< How many of them are still to arrive.
};

}  // namespace xylem::runtime
