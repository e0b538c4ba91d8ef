// SPDX-License-Identifier: Apache-2.0
//
// MessagePool: the messages that an engine has posted, and those that have completed. A transport
// reports the completion of a message within one of its own functions. MessagePool then only adds
// the message to a list, and the engine handles the messages of this list in its next round. A
// message that is complete as soon as it is posted may be handled at once.
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

  /// Returns a new message of an execution, for the peer of a link. The execution does not end
  /// before the message is released. Allocates only if more messages are in use than ever before.
  Message& acquire(Execution& execution, const Link& link);
  void release(Message& message) noexcept;

  /// Adds a message to the list of completed messages. Transports call this through
  /// Operation::done. The engine calls it for a message that is complete as soon as it is posted,
  /// unless it handles the message at once.
  static void on_done(transport::Operation& done) noexcept;
  bool has_completed() const noexcept { return completed_ != nullptr; }
  /// Removes the oldest message from the list of completed messages and returns it. Null if the
  /// list is empty.
  Message* next_completed() noexcept;

 private:
  std::vector<std::unique_ptr<Message[]>> blocks_;
  Message* free_ = nullptr;       ///< Linked by Message::next.
  Message* completed_ = nullptr;  ///< Linked by Message::completed_next, oldest first.
  Message** completed_tail_ = &completed_;
};

}  // namespace xylem::execution
