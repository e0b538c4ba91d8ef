// SPDX-License-Identifier: Apache-2.0
//
// MessagePool: the messages that an engine has posted, and those that have completed. A completion
// is only noted when it happens, within a call of the transport; the engine handles it at its next
// round, unless the post itself says that the message is done.
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

  /// Notes that a message has completed. Transports call this by Operation::done. Call it if
  /// posting a message has completed it at once.
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
