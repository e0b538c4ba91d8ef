// SPDX-License-Identifier: Apache-2.0
//
// MatchQueue: the receives of a group that wait for a message, and the messages that wait for a
// receive. A receive matches by source and tag, in the order of the calls, or by tag alone if it
// accepts any source. For the token holder only.
#pragma once

#include "calls/operation.h"
#include "groups/header_pool.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace xylem::runtime {

class MatchQueue {
 public:
  /// A message that has arrived before its receive.
  struct Arrived {
    MessageHeader header;
    std::vector<std::byte> payload;  ///< Only of a small message.
    Operation* self = nullptr;       ///< If this rank sends to itself: the send.
  };

  MatchQueue() = default;
  MatchQueue(const MatchQueue&) = delete;
  MatchQueue& operator=(const MatchQueue&) = delete;
  ~MatchQueue() = default;

  bool has_receives() const noexcept { return receives_ != nullptr; }
  bool has_arrived() const noexcept { return !arrived_.empty(); }
  /// The oldest receive that waits. Precondition: has_receives().
  const Operation& first_receive() const noexcept { return *receives_; }
  /// Memory used by the messages that wait for a receive, in bytes.
  std::uint64_t arrived_bytes() const noexcept { return arrived_bytes_; }

  /// Queues a receive until its message arrives.
  void push(Operation& receive) noexcept;
  /// Removes and returns the first waiting receive that matches the header. Null if there is none.
  Operation* take_receive(const MessageHeader& header) noexcept;
  /// Removes and returns the first message that matches the receive. Empty if there is none.
  std::optional<Arrived> take_arrived(const Operation& receive);
  /// Queues a message until a receive matches it, and copies the payload of a small message. False
  /// if there is no memory for this: all queued messages from other ranks have then been dropped.
  bool keep(const MessageHeader& header, const std::byte* payload);
  /// Queues a send of this rank to itself until a receive matches it.
  void keep_self(const MessageHeader& header, Operation& send);
  /// Removes the send or receive from the queue, if it is there.
  void forget(Operation& operation) noexcept;

 private:
  static std::uint64_t weight_of(const Arrived& arrived) noexcept;
  static bool matches(const Operation& receive, const MessageHeader& header) noexcept;
  void unlink(Operation** place) noexcept;

  /// The receives that wait for a message, in the order of the calls.
  Operation* receives_ = nullptr;
  Operation** receives_end_ = &receives_;
  std::deque<Arrived> arrived_;
  std::uint64_t arrived_bytes_ = 0;
};

}  // namespace xylem::runtime
