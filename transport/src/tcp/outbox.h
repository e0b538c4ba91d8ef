// SPDX-License-Identifier: Apache-2.0
//
// Outbox: the messages of one endpoint on their way out.
//
//   waiting ──eager, its first frame──► streaming ──its last frame──► written ──► ended
//      └──announced──► announced ──go──────┘              (until the socket has it)
//
// First frames go in the order of the sends, so that equal tags match in it; what streams then
// takes turns. A message within the credit goes ahead of its receive; one beyond it is announced,
// and so holds back nobody behind it.
#pragma once

#include "outcome.h"
#include "tcp/frame.h"
#include "tcp/frame_writer.h"
#include "xylem/transport/transport.h"

#include <cstdint>
#include <deque>
#include <list>

namespace xylem::transport::tcp {

/// One message.
struct Outgoing {
  enum class State : std::uint8_t { waiting, announced, streaming, written };

  Operation* operation = nullptr;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t sent = 0;  ///< Of these, in frames.
  Tag tag = 0;
  std::uint64_t id = 0;
  std::uint32_t frames = 0;  ///< In the writer.
  State state = State::waiting;
  Code code = Code::ok;  ///< With which it will end.
  std::list<Outgoing>::iterator self;
};

class Outbox {
 public:
  Outbox(Outcomes& outcomes, std::uint64_t ahead)
      : outcomes_(&outcomes), ahead_(ahead), credit_(ahead) {}

  void start(TcpConnection& connection) { writer_.start(connection); }

  void send(Tag tag, ConstRegion source, Operation& operation);
  /// Sends a small message at once, if nothing is before it. Its bytes are copied.
  bool send_now(int fd, Tag tag, ConstRegion source);
  /// A word to the peer, before all messages.
  void say(FrameKind kind, std::uint64_t id) { words_.push_back({kind, id}); }
  /// The peer may send so many bytes more. Whatever is sent next says so; where nothing is, it is
  /// said by itself once it is much.
  void give_credit(std::uint64_t bytes);

  /// Writes what the socket takes. `blocked`: more is to be done when it takes more.
  Io pump(int fd);
  /// Nothing is to be written by now.
  bool is_idle() const noexcept { return writer_.is_empty() && !has_more(); }
  /// Nor does a message wait for its peer's go.
  bool is_empty() const noexcept { return is_idle() && announced_.empty(); }

  // What the peer says.
  void on_credit(std::uint64_t bytes) noexcept { credit_ += bytes; }
  void on_go(std::uint64_t id);
  void on_drop(std::uint64_t id);

  /// True if the operation is one of these; it ends.
  bool cancel(const Operation& operation);
  /// Ends all with a code; the socket is gone.
  void end_all(Code code);

 private:
  using Messages = std::list<Outgoing>;
  struct Word {
    FrameKind kind;
    std::uint64_t id;
  };
  /// The longest message that is copied when it is sent, so that it ends at once.
  static constexpr std::uint64_t kCopied = 8 * 1024;

  bool has_more() const noexcept {
    return !words_.empty() || !waiting_.empty() || !streaming_.empty();
  }
  bool is_eager(std::uint64_t bytes) const noexcept {
    return bytes <= kLargestEager && weight_of(bytes) <= credit_;
  }
  Messages& list_of(const Outgoing& message) noexcept;
  void move(Outgoing& message, Outgoing::State state);
  void end(Outgoing& message);
  void withdraw(Outgoing& message);
  void fill();
  void put_word();
  void put_first(Outgoing& message);
  void put_data(Outgoing& message);
  void put(FrameHead head, const std::byte* body, FrameWriter::Body how, Outgoing* owner);
  void on_written(Outgoing& message);
  Outgoing* find(Messages& messages, std::uint64_t id) noexcept;

  Outcomes* outcomes_;
  FrameWriter writer_;
  std::deque<Word> words_;
  Messages waiting_, announced_, streaming_, written_, spare_;
  bool streams_next_ = false;  ///< Messages that begin and those that go on take turns.
  std::uint64_t next_id_ = 0;
  const std::uint64_t ahead_;
  std::uint64_t credit_;      ///< What the peer lets us send ahead.
  std::uint64_t owed_ = 0;    ///< What we let it, and have not said.
  bool says_credit_ = false;  ///< Among the words.
};

}  // namespace xylem::transport::tcp
