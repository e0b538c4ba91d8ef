// SPDX-License-Identifier: Apache-2.0
//
// ReceivePolling: decides whether a call of recv polls for its message. If two ranks both receive
// first and then send, the message arrives only after this rank's own send. Polling would delay
// that send, so recv then does not poll.
#pragma once

#include "xylem/execution/poll_budget.h"

namespace xylem::runtime {

class ReceivePolling {
 public:
  explicit ReceivePolling(execution::PollBudget budget) noexcept : budget_(budget) {}

  void note_send() noexcept {
    receives_first_ = receives_first_ || has_missed_;
    has_missed_ = false;
  }
  void note_arrival() noexcept {
    receives_first_ = receives_first_ && !has_missed_;
    has_missed_ = false;
  }
  /// Polls: calls `take` until it returns true, for a limited time. Does nothing if polling is not
  /// worthwhile. Returns whether `take` has returned true.
  template <typename Take>
  bool await_message(const Take& take) {
    const bool has_arrived = !receives_first_ && budget_.await(take);
    has_missed_ = !has_arrived;
    return has_arrived;
  }
  /// Calls `take` until it returns true, for a limited time: polls for the body of a message whose
  /// header has arrived.
  template <typename Take>
  bool await_body(const Take& take) {
    return budget_.await(take);
  }

 private:
  execution::PollBudget budget_;
  /// True if the last receive got its message only after a send of this rank.
  bool receives_first_ = false;
  /// True if the last receive found no message, and this rank has sent nothing since.
  bool has_missed_ = false;
};

}  // namespace xylem::runtime
