// SPDX-License-Identifier: Apache-2.0
//
// GateWaits: which messages wait for the streams of their receives.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xylem::runtime {

/// For the messages from one rank, in device memory, that came before their receives' turn on their
/// streams (before their gates opened). After a wait in vain, some of them do not wait: one, then
/// 3, 7, 15, and from then on 31, until a gate opens in time. For one thread at a time.
class GateWaits {
 public:
  /// Whether the next such message waits.
  bool is_due() const noexcept { return left_ == 0; }
  /// A gate did not open in time, or its message did not wait.
  void note_late() noexcept {
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

  std::uint32_t skipped_ = 0;  ///< The messages that do not wait, after the last wait in vain.
  std::uint32_t left_ = 0;     ///< Those of them that are still to come.
};

}  // namespace xylem::runtime
