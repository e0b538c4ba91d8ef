// SPDX-License-Identifier: Apache-2.0
//
// Outbox: the outgoing messages of one endpoint.
//
//   waiting ──eager, first frame──► streaming ──last frame──► written ──► ended
//      └──announce──► announced ──go────┘            (until the socket has it)
//
// The first frames of messages are sent in the order of the sends, so that messages with equal tags
// match in this order. Between them, frames of streaming messages are sent, see next_streaming(). A
// message within the credit is sent ahead of its receive (is_eager()). Any other message is
// announced, so it does not block later messages.
#pragma once

#include "outcome.h"
#include "tcp/frame.h"
#include "tcp/frame_writer.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <deque>
#include <list>

namespace xylem::transport::tcp {

/// One outgoing message.
struct Outgoing {
  enum class State : std::uint8_t { waiting, announced, streaming, written };

  Operation* operation = nullptr;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t sent = 0;  ///< Number of bytes that have been put into frames.
  Tag tag = 0;
  std::uint64_t id = 0;
  std::uint32_t frames = 0;  ///< Number of this message's frames in the writer.
  State state = State::waiting;
  Code code = Code::ok;  ///< The code with which the send will complete.
  std::list<Outgoing>::iterator self;
};

class Outbox {
 public:
  Outbox(Outcomes& outcomes, std::uint64_t ahead)
      : outcomes_(&outcomes), ahead_(ahead), credit_(ahead) {}

  void start(Connection& connection) { writer_.start(connection); }

  void send(Tag tag, ConstRegion source, Operation& operation);
  /// Sends a small message at once, from a copy, and returns true. Returns false if the message is
  /// too large, if there is no credit or room, or if other frames must be sent first.
  bool send_now(int fd, Tag tag, ConstRegion source);
  /// Queues a control frame. Control frames are sent before messages.
  void send_control(FrameKind kind, std::uint64_t id) { controls_.push_back({kind, id}); }
  /// Allows the peer to send more bytes ahead of receives. The next frame reports this credit. If
  /// no frame is sent, a credit frame reports it once it amounts to a quarter of `ahead`.
  void return_credit(std::uint64_t bytes);

  /// Writes as much as the socket accepts. Io::blocked means that bytes remain: call pump() again
  /// when the socket accepts more.
  Io pump(int fd);
  /// Whether there is nothing to write at present.
  bool is_idle() const noexcept { return writer_.is_empty() && !has_more(); }
  /// Like is_idle(), and no message waits for a `go` frame of the peer.
  bool is_empty() const noexcept { return is_idle() && announced_.empty(); }

  // These functions handle frames from the peer.
  void on_credit(std::uint64_t bytes) noexcept { credit_ += bytes; }
  void on_go(std::uint64_t id);
  void on_drop(std::uint64_t id);

  /// Ends the send of this operation. Its code is cancelled, or ok if the whole message is in the
  /// writer. False if the operation is not a send of this outbox.
  bool cancel(const Operation& operation);
  /// Ends all sends with `code`. Call this after the socket has been closed.
  void end_all(Code code);

 private:
  using Messages = std::list<Outgoing>;
  struct Control {
    FrameKind kind;
    std::uint64_t id;
  };
  /// Messages up to this size are copied when they are sent, so their sends complete at once.
  static constexpr std::uint64_t kCopied = 8 * 1024;

  bool has_more() const noexcept {
    return !controls_.empty() || !waiting_.empty() || !streaming_.empty();
  }
  /// Whether a message may be sent ahead of its receive. A message of several frames does not
  /// overtake an announced one: of the slices of a pipeline, a late one delays all that follow it.
  bool is_eager(std::uint64_t bytes) const noexcept {
    return bytes <= kLargestEager && weight_of(bytes) <= credit_ &&
           (bytes <= kLargestBody || announced_.empty());
  }
  Messages& list_of(const Outgoing& message) noexcept;
  void move(Outgoing& message, Outgoing::State state);
  void end(Outgoing& message);
  void withdraw(Outgoing& message);
  void fill();
  void put_control();
  void put_first(Outgoing& message);
  void put_data(Outgoing& message);
  Outgoing& next_streaming();
  void put(FrameHead head, const std::byte* body, FrameWriter::Body how, Outgoing* owner);
  void on_written(Outgoing& message);
  Outgoing* find(Messages& messages, std::uint64_t id) noexcept;

  Outcomes* outcomes_;
  FrameWriter writer_;
  std::deque<Control> controls_;
  Messages waiting_, announced_, streaming_, written_, spare_;
  /// Whether the next frame is of a streaming message. Frames of new and of streaming messages
  /// alternate.
  bool streams_next_ = false;
  /// Whether the last streaming message was chosen for its few bytes left.
  bool prefers_short_ = false;
  std::uint64_t next_id_ = 0;
  const std::uint64_t ahead_;
  std::uint64_t credit_;           ///< How many more bytes may be sent ahead of receives.
  std::uint64_t owed_ = 0;         ///< Credit for the peer that no frame has reported yet.
  bool has_credit_frame_ = false;  ///< True if a credit frame is queued.
};

}  // namespace xylem::transport::tcp
