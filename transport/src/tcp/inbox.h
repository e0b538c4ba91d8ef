// SPDX-License-Identifier: Apache-2.0
//
// Inbox: the incoming messages of one endpoint.
//
//   eager ──a receive is posted──► arriving in its target ──complete──► ended
//     └─────none is posted──► arriving in our memory ──complete──► whole ──received──► ended
//   announce ──a receive is posted──► go ──► arriving in its target
//       └──────none is posted──► announced ──received──► go
//
// The matcher contains the messages that wait for a receive, with their ids. A message that is
// cancelled, dropped or too long is sunk: its remaining bytes are read, since other frames follow
// them in the byte stream, and discarded.
#pragma once

#include "matcher.h"
#include "outcome.h"
#include "receive.h"
#include "tcp/frame_reader.h"
#include "tcp/outbox.h"

#include <array>
#include <cstdint>
#include <list>
#include <memory>

namespace xylem::transport::tcp {

/// One incoming message. Either a receive has matched it, or it waits in the matcher, or it is
/// sunk.
struct Incoming {
  enum class State : std::uint8_t { announced, arriving, whole };

  std::uint64_t id = 0;
  State state = State::arriving;
  bool is_sunk = false;
  bool is_eager = false;
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t got = 0;  ///< Number of bytes that have arrived.
  Receive receive{};      ///< Its `operation` is null while no receive has matched.
  /// The bytes of a message that arrived before its receive.
  std::unique_ptr<std::byte[]> memory{};
  std::list<Incoming>::iterator self;
};

class Inbox final : public FrameListener {
 public:
  /// The inbox adds its replies to the peer to `outbox`; the owner of both writes them after each
  /// call.
  Inbox(EndpointId endpoint, Matcher& matcher, Outcomes& outcomes, Outbox& outbox)
      : endpoint_(endpoint), matcher_(&matcher), outcomes_(&outcomes), outbox_(&outbox) {}

  void start(Connection& connection) { reader_.start(connection); }
  Io read(int fd, unsigned& frames) { return reader_.read(fd, *this, frames); }

  // The functions of FrameListener, which the reader calls.
  bool on_head(const FrameHead& head, std::byte*& body) override;
  bool on_frame(const FrameHead& head) override;

  /// Whether there was no memory for a message. If so, the owner must end the connection.
  bool lacks_memory() const noexcept { return lacks_memory_; }
  /// Assigns message `id`, which the caller has just removed from the matcher, to the receive that
  /// has matched it. True if the receive is complete; its operation then contains the result.
  bool match(std::uint64_t id, const Receive& receive);
  /// Drops message `id`, which the caller has just removed from the matcher.
  void drop(std::uint64_t id);
  /// Ends the receive of this operation with cancelled. False if the operation is not a receive
  /// that has matched a message of this inbox.
  bool cancel(const Operation& operation);
  /// Call this when the connection has ended. Ends all receives that have matched a message with
  /// `code`. Complete messages without a receive stay.
  void end_all(Code code);

 private:
  using Messages = std::list<Incoming>;
  static constexpr std::size_t kBuckets = 64;

  bool on_first(const FrameHead& head);
  bool is_sane(const FrameHead& head) const noexcept;
  std::byte* place_of(Incoming& message) const noexcept;
  void on_withdraw(std::uint64_t id);
  void finish(Incoming& message);
  void deliver(Incoming& message);
  void sink(Incoming& message);
  Incoming& add(const FrameHead& head);
  Incoming* find(std::uint64_t id) noexcept;
  void release(Incoming& message);
  void complete(const Receive& receive, Code code, std::uint64_t bytes) {
    outcomes_->push_back({receive.operation, code, bytes});
  }
  void return_credit(const Incoming& message);

  EndpointId endpoint_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  Outbox* outbox_;
  FrameReader reader_;
  std::array<Messages, kBuckets> messages_;  ///< The messages, in buckets by their ids.
  Messages spare_;
  Incoming* current_ = nullptr;  ///< The message whose body is being read.
  bool lacks_memory_ = false;
};

}  // namespace xylem::transport::tcp
