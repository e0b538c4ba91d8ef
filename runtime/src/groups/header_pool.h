// SPDX-License-Identifier: Apache-2.0
//
// The headers of point-to-point messages, and the header slots in which they travel. A header slot
// is memory of the pool, and not a slot of shared memory. Header slots are pooled, since a
// transport may hold one for longer than its communicator lives.
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
  std::uint64_t count = 0;  ///< Elements.
  /// Number of the message among all messages from this sender to this receiver, modulo 2^32.
  std::uint32_t number = 0;
  std::uint32_t source = 0;  ///< The rank of the sender in the group.
  std::uint32_t tag = 0;
  std::uint8_t type = 0;
  std::uint8_t reserved[3] = {};
};
// An entry of shared memory with the header and 8 bytes of payload is one cache line.
static_assert(sizeof(MessageHeader) == 32);

/// Messages up to this many bytes travel within their header.
inline constexpr std::size_t kInlineMessage = 4096;

/// The size of the message that a header announces, in bytes.
inline std::uint64_t body_bytes(const MessageHeader& header) noexcept {
  return header.count * size_of(static_cast<DataType>(header.type));
}

struct HeaderSlot;

/// Posts slots to receive headers. For the token holder only.
class HeaderOwner {
 public:
  /// A slot that this object posted has ended, with or without an error (see `code`). The slot must
  /// be returned to the pool, or be posted again.
  virtual void on_header(HeaderSlot& slot) = 0;

 protected:
  ~HeaderOwner() = default;
};

/// Sends headers, and looks for them in shared memory. For the token holder only.
class HeaderUser {
 public:
  /// A transport no longer holds a header that was to be sent; `code` says whether sending failed.
  /// The pool reclaims the slot.
  virtual void on_sent(const HeaderSlot& slot) = 0;
  /// Looks for headers in the shared memory in which peers write them, before the transport moves
  /// them to a posted slot. Called in each turn after HeaderPool::start_polling(). Adds the number
  /// of headers found to `found`. False if it need not be called any more.
  virtual bool poll_headers(unsigned& found) = 0;

 protected:
  ~HeaderUser() = default;
};

/// The state of a header in transit. It is replaced as a whole when the slot is used again.
struct HeaderSlotState : transport::Operation {
  class HeaderPool* pool = nullptr;
  HeaderOwner* owner = nullptr;  ///< Who posted the slot. Null once its group is closed.
  transport::Transport* transport = nullptr;
  HeaderSlot* next = nullptr;
  bool incoming = false;
  /// True if the group itself took the header of this slot from shared memory. Such a slot is not
  /// posted again.
  bool is_unposted = false;
  /// True if the slot receives, instead of a header, the body of a refused message, and stores
  /// nothing of it.
  bool drops_body = false;
  bool is_sent = false;    ///< The header is outgoing, and its transport still holds it.
  std::uint32_t peer = 0;  ///< For an outgoing header: the world rank of the receiver.
  std::uint32_t to = 0;    ///< For an outgoing header: the rank of the receiver in the group.
  /// The user to notify when the header has been sent. Null once its group is closed.
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
  /// The slot's message has completed, possibly within the call that posted it.
  void completed(HeaderSlot& slot) noexcept;
  /// Reports all completed slots to their users, and reclaims the slots that have no user. Called
  /// after the transports have made progress.
  void hand_over_completed();
  /// From now on, turn() calls this user.
  void start_polling(HeaderUser& user) { pollers_.push_back(&user); }
  /// Calls HeaderUser::poll_headers() of the users that asked for it. Called before the transports
  /// make progress.
  unsigned turn(Token token) override;
  /// A transport may still hold a message whose Work has ended. Then perhaps no thread of the user
  /// drives the job, so turns are needed.
  Need need() const noexcept override { return sending() > 0 ? Need::turns : Need::nothing; }
  /// The number of slots that are posted to receive, or hold a received header.
  std::size_t receiving() const noexcept { return in_use_ - sending(); }
  bool has_completed() const noexcept { return completed_ != nullptr; }
  bool is_sending_to(std::uint32_t world_rank) const noexcept;
  /// Call this when the user's group is closed. From then on, neither its on_sent() nor its look()
  /// is called.
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
