// SPDX-License-Identifier: Apache-2.0
//
// GateWaits: decides whether a message in device memory waits until the stream of its receive has
// reached the receive.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xylem::runtime {

/// A message may arrive before the stream of its receive has reached the receive, that is, before
/// the gate of the receive has opened. The message may then wait a short time for the gate; if the
/// gate stays closed, the wait has failed. After one failed wait, the next such message from the
/// same rank does not wait. After further failed waits, the next 3, 7, 15, and then always 31
/// messages do not wait. When a gate opens in time, all messages wait again. There is one object
/// for each sender. Only one thread at a time may use it.
class GateWaits {
 public:
  /// Whether the next message waits if its gate is closed.
  bool may_wait() const noexcept { return left_ == 0; }
  /// Call this if the gate of a message did not open in time, or if the message did not wait for
  /// it.
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

  std::uint32_t skipped_ = 0;  ///< How many messages do not wait after the last failed wait.
  std::uint32_t left_ = 0;     ///< How many of these messages have not arrived yet.
};

}  // namespace xylem::runtime
