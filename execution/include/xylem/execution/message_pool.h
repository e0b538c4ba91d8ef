// SPDX-License-Identifier: Apache-2.0
//
// MessagePool: the messages that an engine has posted, and those that have completed. When a
// message completes, within a call of the transport, this is only recorded. The engine handles it
// in its next round, or at once if the message is complete when it has been posted.
//
//   free ──acquire──► posted ──on_done──► completed ──next_completed──► handled ──release──► free
#pragma once

#include "xylem/execution/execution.h"

#include <memory>
#include <vector>

namespace xylem::execution {

class MessagePool {
 public:
  MessagePool() = default;
  MessagePool(const MessagePool&) = delete;
  MessagePool& operator=(const MessagePool&) = delete;
  ~MessagePool() = default;

  /// A new message of an execution, for the peer of a link. The execution does not end before the
  /// message is released. Allocates only if more messages are in use than ever before.
  Message& acquire(Execution& execution, const Link& link);
  void release(Message& message) noexcept;

  /// Records that a message has completed. Transports call this by Operation::done. The engine
  /// calls it if a message that it has posted is complete at once, unless it handles the message
  /// itself.
  static void on_done(transport::Operation& done) noexcept;
  bool has_completed() const noexcept { return completed_ != nullptr; }
  /// The oldest message that has completed and was not returned before. Null if there is none.
  Message* next_completed() noexcept;

 private:
  std::vector<std::unique_ptr<Message[]>> blocks_;
  Message* free_ = nullptr;       ///< Linked by Message::next.
  Message* completed_ = nullptr;  ///< Oldest first.
  Message** completed_tail_ = &completed_;
};

}  // namespace xylem::execution
