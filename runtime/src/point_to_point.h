// SPDX-License-Identifier: Apache-2.0
//
// Point to point: matching of send and recv by (source, tag), in order, with any source.
//
// Each message begins with a header, numbered per ordered pair of ranks. A small message travels
// within its header; the body of a large one follows under a tag of its own, which the receiver
// posts once the header has met a receive, so it lands in the user's buffer. Headers go into slots
// that every member keeps posted for its group.
//
// Memory is bounded. Of messages that no receive has met a group keeps kMostUnexpected; then it
// posts no slots until some have been received, or a receive waits for one that has not come. What
// its transport does not take stays with the sender: kMostSending headers to each rank are on their
// way, and further sends wait in the order called, in their users' buffers.
//
//   sender                                   receiver
//   header{number, tag, count, type} ──────► slot; match(source, tag) with a receive, or keep
//   body (large) ──────────────────────────► posted into the user's buffer at the match
//
// A message from or to a device's memory goes through memory of the host, as a whole: it is copied
// there before it is sent, and to its place after it has arrived.
#pragma once

#include "group_spec.h"
#include "header_pool.h"
#include "operation.h"
#include "xylem/base/status.h"
#include "xylem/execution/engine.h"
#include "xylem/execution/link.h"
#include "xylem/runtime/work.h"
#include "xylem/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// Bytes of the message that a header announces.
inline std::uint64_t body_bytes(const MessageHeader& header) noexcept {
  return header.count * size_of(static_cast<DataType>(header.type));
}

/// One group's messages. Token holder only.
class PointToPoint final : private HeaderUser {
 public:
  /// What the group does for its messages.
  class Client {
   public:
    /// An operation for a call that has begun without one.
    virtual Operation& begin_operation() = 0;
    /// Not OK once the group is poisoned.
    virtual const Status& health() const noexcept = 0;
    /// Poisons the group here and on all ranks.
    virtual void announce(Code code, std::optional<std::uint32_t> culprit, std::string message) = 0;
    /// A wire to `why.peer()` failed.
    virtual void suspect(Status why) = 0;

   protected:
    ~Client() = default;
  };

  /// All of these outlive it. `peers` has the links of those whom an operation is started for.
  PointToPoint(Client& client,
               const GroupSpec& spec,
               const execution::Peers& peers,
               Engine& engine,
               HeaderPool& headers);

  void start(Operation& operation);
  /// Sends or receives a message whose arguments are right, where that is possible at once: all of
  /// it, or all but a body, for which an operation is begun. None if it is not.
  std::optional<Work> try_send(const ConstBuffer& buffer, std::uint32_t to, std::uint32_t tag);
  std::optional<Work> try_recv(const Buffer& buffer, std::uint32_t from, std::uint32_t tag);
  /// A large body has been sent or received.
  void on_body(Message& message);
  /// The bytes of a message have been copied between the host and a device.
  void on_copied(Operation& operation);
  /// An operation that ends, and may not have met its partner.
  void forget(Operation& operation) noexcept;
  /// Gives the posted slots back; the group is about to end.
  void close() noexcept;

 private:
  static constexpr std::size_t kPostedSlots = 8;  ///< Per transport.
  static constexpr std::uint32_t kMostSending = 1024;
  static constexpr std::uint64_t kMostUnexpected = 1 << 20;

  struct Arrived {
    MessageHeader header;
    std::vector<std::byte> payload;
    runtime::Operation* self =
        nullptr;  ///< A send of this rank to itself, waiting for its receive.
  };
  struct Pair {
    std::uint32_t sent = 0;                 ///< Number of the next message to it.
    std::uint32_t expected = 0;             ///< Number of the next header from it.
    std::uint32_t sending = 0;              ///< Headers to it that its transport still holds.
    runtime::Operation* waiting = nullptr;  ///< Sends to it that have not begun, in order.
    runtime::Operation* last_waiting = nullptr;
    std::vector<HeaderSlot*> early;  ///< Headers that overtook others.
  };

  MessageHeader next_header(std::uint32_t to,
                            std::uint64_t count,
                            DataType type,
                            std::uint32_t tag) const noexcept;
  transport::Tag tag_of_body(const MessageHeader& header) const noexcept;
  void note_send() noexcept {
    receives_first_ = receives_first_ || has_missed_;
    has_missed_ = false;
  }
  void note_arrival() noexcept {
    receives_first_ = receives_first_ && !has_missed_;
    has_missed_ = false;
  }
  std::optional<transport::View> take_header(const Link& link);
  std::optional<transport::View> take_next(const Link& link,
                                           transport::Tag tag,
                                           std::uint64_t bytes);
  /// What of a message has been sent at once.
  enum class Sent : std::uint8_t { nothing, header, all };
  Sent send_at_once(const Link& link, const MessageHeader& header, const void* data);
  void send_header(const MessageHeader& header, const Call& call);
  bool try_send_body(const Link& link, const MessageHeader& header, const void* data);
  std::optional<MessageHeader> next_of(const transport::View& message,
                                       std::uint32_t source) const noexcept;
  bool try_receive_body(const Link& link, const MessageHeader& header, void* data);
  void keep(const transport::View& view, transport::Transport& transport);
  void send_body(Operation& operation, const MessageHeader& header);
  void receive_body(Operation& operation, const MessageHeader& header);
  void send(Operation& operation);
  void begin_send(Operation& operation);
  void on_sent(const HeaderSlot& slot) override;
  void wait_for_turn(Operation& operation);
  void send_waiting(Pair& pair);
  void begin_any_send(Operation& operation);
  void send_to_self(Operation& operation);
  std::byte* host_room(Operation& operation, std::uint64_t bytes);
  void complete_receive(Operation& operation, const void* source);
  void receive(Operation& operation);
  /// Keeps slots posted on every wire over which a message for the receive may come.
  void post_slots(const Operation& receive);
  void add_slot(transport::Transport& transport);
  void post_slot(HeaderSlot& slot);
  /// Posts it again, unless enough is kept that nobody receives.
  void reuse_slot(HeaderSlot& slot);
  void wake_slots();
  static std::uint64_t weight_of(const Arrived& arrived) noexcept;
  void on_header(HeaderSlot& slot) override;
  bool look(unsigned& found) override;
  void drop(HeaderSlot& slot) noexcept;
  /// Takes the next header from its source, with the payload of a small message.
  void accept(const MessageHeader& header, const std::byte* payload);
  bool matches(const Operation& receive, const MessageHeader& header) const noexcept;
  /// Takes the first waiting receive that matches off its list; null if there is none.
  Operation* take_receive(const MessageHeader& header) noexcept;
  void unlink(Operation** place) noexcept;
  bool forget_waiting(Operation& operation) noexcept;
  void on_bad_slot(HeaderSlot& slot);
  void deliver(Operation& receive,
               const MessageHeader& header,
               const std::byte* payload,
               Operation* self);

  const Link& link_to(std::uint32_t rank) const noexcept { return peers_.links[rank]; }

  Client& client_;
  const GroupSpec& spec_;
  const execution::Peers& peers_;
  Engine& engine_;
  HeaderPool& pool_;
  /// How long a receive that is called polls for its message. The message may come only after the
  /// caller's own send, if both ranks receive first and then send: then polling delays that send.
  Patience patience_;
  bool receives_first_ = false;  ///< The last receive had its message only after a send.
  bool has_missed_ = false;      ///< The last receive found no message, and nothing was sent since.
  std::vector<transport::Transport*> posted_;  ///< Wires on which slots are posted.
  bool closed_ = false;
  bool looks_ = false;  ///< HeaderPool::look() asks it.
  std::vector<Pair> pairs_;
  std::deque<Arrived> unexpected_;
  std::uint64_t unexpected_bytes_ = 0;
  std::vector<HeaderSlot*> resting_;  ///< Of `slots_`: not posted at the moment.
  Operation* receives_ = nullptr;     ///< Waiting, in the order called.
  Operation** receives_tail_ = &receives_;
  std::vector<HeaderSlot*> slots_;
};

}  // namespace xylem::runtime
