// SPDX-License-Identifier: Apache-2.0
//
// Inbox: the messages of one endpoint on their way in.
//
//   eager ──a receive is posted──► arriving, to its place ──all here──► ended
//     └─────none is──► arriving, to memory of ours ──all here──► whole ──received──► ended
//   announce ──a receive is posted──► go ──► arriving, to its place
//       └──────none is──► announced ──received──► go
//
// Those that wait for a receive are in the matcher, under their number. What is cancelled, dropped
// or too long is sunk: the rest of it is read, for the stream's sake, and goes nowhere.
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

/// One message. It has a receive, or waits for one in the matcher, or is sunk.
struct Incoming {
  enum class State : std::uint8_t { announced, arriving, whole };

  std::uint64_t id = 0;
  State state = State::arriving;
  bool is_sunk = false;
  bool is_eager = false;
  Tag tag = 0;
  std::uint64_t bytes = 0;
  std::uint64_t got = 0;                  ///< Of these, as the peer sent them.
  Receive receive{};                      ///< Without an operation: none has come.
  std::unique_ptr<std::byte[]> memory{};  ///< Of one that came ahead of its receive.
  std::list<Incoming>::iterator self;
};

class Inbox final : public FrameListener {
 public:
  /// What `outbox` says for it is written by the owner, who looks there after each call.
  Inbox(EndpointId endpoint, Matcher& matcher, Outcomes& outcomes, Outbox& outbox)
      : endpoint_(endpoint), matcher_(&matcher), outcomes_(&outcomes), outbox_(&outbox) {}

  void start(TcpConnection& connection) { reader_.start(connection); }
  Io read(int fd, unsigned& frames) { return reader_.read(fd, *this, frames); }

  // Of the reader.
  bool on_head(const FrameHead& head, std::byte*& body) override;
  bool on_frame(const FrameHead& head) override;

  /// Whether there was no memory for a message: then its connection has to end.
  bool lacks_memory() const noexcept { return lacks_memory_; }
  /// A receive meets a message of the matcher's, which has let go of it. True if it has ended with
  /// that: its operation tells how.
  bool meet(std::uint64_t id, const Receive& receive);
  /// Drops one that the matcher has let go of.
  void drop(std::uint64_t id);
  /// True if the operation is a receive that has met one of these; it ends.
  bool cancel(const Operation& operation);
  /// No more comes. Ends all receives that have met a message; whole messages stay.
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
  void tell(const Receive& receive, Code code, std::uint64_t bytes) {
    outcomes_->push_back({receive.operation, code, bytes});
  }
  void return_credit(const Incoming& message);

  EndpointId endpoint_;
  Matcher* matcher_;
  Outcomes* outcomes_;
  Outbox* outbox_;
  FrameReader reader_;
  std::array<Messages, kBuckets> messages_;  ///< By number.
  Messages spare_;
  Incoming* current_ = nullptr;  ///< Whose body is being read.
  bool lacks_memory_ = false;
};

}  // namespace xylem::transport::tcp
