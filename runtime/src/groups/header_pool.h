// SPDX-License-Identifier: Apache-2.0
//
// The headers of point-to-point messages, and the header slots from which they are sent and into
// which they are received. A header slot is memory of the pool, and not a slot of shared memory.
// Header slots are pooled, since a transport may use one for longer than its communicator exists.
#pragma once

#include "progress/token.h"
#include "progress/work_source.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"
#include "xylem/transport/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::runtime {

/// Precedes every point-to-point message. It is little-endian, like every machine that Xylem runs
/// on.
struct MessageHeader {
  /// The group's uid. It distinguishes the group from earlier groups with the same tag slot.
  std::uint64_t group = 0;
  std::uint64_t count = 0;  ///< Number of elements.
  /// Number of the message among all messages from this sender to this receiver, modulo 2^32.
  std::uint32_t number = 0;
  std::uint32_t source = 0;  ///< The rank of the sender in the group.
  std::uint32_t tag = 0;
  std::uint8_t type = 0;
  std::uint8_t is_note = 0;  ///< 1 for a note (PointToPoint::send_note()), otherwise 0.
  std::uint8_t reserved[2] = {};
};
// An entry of shared memory that contains a header and 8 bytes of payload fills one cache line.
static_assert(sizeof(MessageHeader) == 32);

/// A message of up to this many bytes is sent together with its header.
inline constexpr std::size_t kInlineMessage = 4096;

/// The size of the message that a header announces, in bytes.
inline std::uint64_t body_bytes(const MessageHeader& header) noexcept {
  return header.count * size_of(static_cast<DataType>(header.type));
}

struct HeaderSlot;

/// Posts header slots, and handles the headers received into them. Called by the token holder only.
class HeaderOwner {
 public:
  /// The receive of a slot that this object posted has completed or failed (see `code`). This
  /// object must return the slot to the pool, or post it again.
  virtual void on_header(HeaderSlot& slot) = 0;

 protected:
  ~HeaderOwner() = default;
};

/// Sends headers, and polls shared memory for headers that arrive. Called by the token holder only.
class HeaderUser {
 public:
  /// The transport has completed or failed the send of a header (see `code`), and does not use the
  /// slot any more. The pool reclaims the slot.
  virtual void on_sent(const HeaderSlot& slot) = 0;
  /// Polls the shared memory into which peers write headers, before the transport moves the headers
  /// to posted slots. After HeaderPool::start_polling(), it is called in each turn until it returns
  /// false. Adds the number of headers found to `found`.
  virtual bool poll_headers(unsigned& found) = 0;

 protected:
  ~HeaderUser() = default;
};

/// The state of a header slot. HeaderPool::take() resets it.
struct HeaderSlotState : transport::Operation {
  class HeaderPool* pool = nullptr;
  HeaderOwner* owner = nullptr;  ///< The poster of the slot; null after its group was closed.
  transport::Transport* transport = nullptr;
  HeaderSlot* next = nullptr;
  bool incoming = false;
  /// True if the group itself copied the header of this slot from shared memory. Such a slot is not
  /// posted again.
  bool is_unposted = false;
  /// True if the slot receives the body of a refused message, and not a header. It stores nothing
  /// of the body.
  bool drops_body = false;
  bool is_sent = false;    ///< The header is outgoing, and its transport still holds it.
  std::uint32_t peer = 0;  ///< For an outgoing header: the world rank of the receiver.
  std::uint32_t to = 0;    ///< For an outgoing header: the rank of the receiver in the group.
  /// The user to notify when the header has been sent. Null after its group was closed.
  HeaderUser* sender = nullptr;
};

/// A header, with the payload of a small message. The pool owns it, so it may outlive its group.
struct HeaderSlot : HeaderSlotState {
  MessageHeader header;
  std::byte payload[kInlineMessage];
};

/// The header slots of one job. For the token holder only.
class HeaderPool final : public WorkSource {
 public:
  HeaderPool() = default;
  HeaderPool(const HeaderPool&) = delete;
  HeaderPool& operator=(const HeaderPool&) = delete;
  ~HeaderPool() override = default;

  HeaderSlot& take();
  void give_back(HeaderSlot& slot) noexcept;
  /// Counts an outgoing slot as held by its transport. Call this before the slot is passed to the
  /// transport, which may complete it at once.
  void note_sent(HeaderSlot& slot) noexcept {
    slot.is_sent = true;
    sending_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Call this when the slot's send or receive has completed or failed, even if this happens within
  /// the call that posted it. Queues the slot for hand_over_completed().
  void completed(HeaderSlot& slot) noexcept;
  /// Reports all completed slots to their senders and owners, and reclaims the slots without an
  /// owner. Called after the transports have made progress.
  void hand_over_completed();
  /// Makes turn() call poll_headers() of this user until poll_headers() returns false.
  void start_polling(HeaderUser& user) { pollers_.push_back(&user); }
  /// Calls HeaderUser::poll_headers() of the users that were passed to start_polling(). Called
  /// before the transports make progress.
  unsigned turn(Token token) override;
  /// A transport may still hold a header whose Work has ended. Possibly no user thread waits and
  /// drives the job then, so the progress thread must make turns.
  Need need() const noexcept override { return sending() > 0 ? Need::turns : Need::nothing; }
  /// The number of slots that are posted to receive, or hold a received header.
  std::size_t receiving() const noexcept { return in_use_ - sending(); }
  bool has_completed() const noexcept { return completed_ != nullptr; }
  bool is_sending_to(std::uint32_t world_rank) const noexcept;
  /// Call this when the user's group is closed. From then on, neither its on_sent() nor its
  /// poll_headers() is called.
  void forget(const HeaderUser& user) noexcept;
  /// The number of outgoing slots that a transport still holds. Any thread may call this.
  std::uint32_t sending() const noexcept { return sending_.load(std::memory_order_acquire); }

 private:
  HeaderSlot* take_completed() noexcept;
  void hand_over(HeaderSlot& slot);
  static void on_done(transport::Operation& done) noexcept;

  std::vector<std::unique_ptr<HeaderSlot>> all_;
  std::vector<HeaderUser*> pollers_;
  HeaderSlot* free_ = nullptr;
  HeaderSlot* completed_ = nullptr;
  HeaderSlot** completed_tail_ = &completed_;
  std::size_t in_use_ = 0;
  std::atomic<std::uint32_t> sending_{0};
};

}  // namespace xylem::runtime
