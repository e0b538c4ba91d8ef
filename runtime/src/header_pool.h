// SPDX-License-Identifier: Apache-2.0
//
// The headers of point-to-point messages, and the slots in which they travel. Slots are pooled,
// since a transport may hold one for longer than its communicator lives.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::runtime {

/// Precedes every message on the wire. Little-endian, like every machine that Xylem runs on.
struct MessageHeader {
  std::uint64_t group = 0;   ///< Its uid, which tells it from earlier groups of the same slot.
  std::uint64_t count = 0;   ///< Elements.
  std::uint32_t number = 0;  ///< Counts the messages of this ordered pair of ranks, modulo 2^32.
  std::uint32_t source = 0;  ///< Rank in the group.
  std::uint32_t tag = 0;
  std::uint8_t type = 0;
  std::uint8_t reserved[3] = {};
};
// An entry of shared memory with the header and 8 bytes of payload is one cache line.
static_assert(sizeof(MessageHeader) == 32);

/// Messages up to this many bytes travel within their header.
inline constexpr std::size_t kInlineMessage = 4096;

struct HeaderSlot;

/// Whoever posts slots to receive headers, and sends headers. Token holder only.
class HeaderUser {
 public:
  /// A slot that this user posted has ended, well or not (see `code`). The user gives the slot
  /// back.
  virtual void on_header(HeaderSlot& slot) = 0;
  /// A transport no longer holds a header that was to be sent; `code` says whether sending failed.
  /// The slot goes back to the pool by itself.
  virtual void on_sent(const HeaderSlot& slot) = 0;
  /// After HeaderPool::look_for(): looks for headers where the peers write them, before they come
  /// to a posted slot. Adds what it found to `found`; false if there is no need to look any more.
  virtual bool look(unsigned& found) = 0;

 protected:
  ~HeaderUser() = default;
};

/// The state of a header on its way. Replaced as a whole when the slot is used again.
struct HeaderSlotState : transport::Operation {
  class HeaderPool* pool = nullptr;
  HeaderUser* owner = nullptr;  ///< Who posted it; null once the group is closed.
  transport::Transport* transport = nullptr;
  HeaderSlot* next = nullptr;
  bool incoming = false;
  bool is_unposted = false;      ///< It was taken from the ring, and is not posted again.
  bool is_sent = false;          ///< It is outgoing, and its transport holds it.
  std::uint32_t peer = 0;        ///< World rank to which an outgoing one goes.
  std::uint32_t to = 0;          ///< The same rank, in the group.
  HeaderUser* sender = nullptr;  ///< Who waits for it to be sent; null once the group is closed.
};

/// A header, with its payload if that is small. Owned by the pool, so it may outlive its group.
struct HeaderSlot : HeaderSlotState {
  MessageHeader header;
  std::byte payload[kInlineMessage];
};

/// Header slots of one job. Token holder only.
class HeaderPool {
 public:
  HeaderSlot& take();
  void give_back(HeaderSlot& slot) noexcept;
  /// An outgoing slot has been handed to its transport.
  void note_sent(HeaderSlot& slot) noexcept {
    slot.is_sent = true;
    sending_.fetch_add(1, std::memory_order_relaxed);
  }
  /// The slot's message has completed, possibly within the call that posted it.
  void completed(HeaderSlot& slot) noexcept;
  /// Tells the users of all completed slots, and takes back the slots that have no user. Called
  /// after each round of transport progress.
  void hand_over_completed();
  /// From now on look() asks this user.
  void look_for(HeaderUser& user) { lookers_.push_back(&user); }
  /// Asks those that look for headers; how many these have found. Called before each round of
  /// transport progress.
  unsigned look();
  /// Slots that are posted to receive, or hold a received header.
  std::size_t receiving() const noexcept { return in_use_ - sending(); }
  bool has_completed() const noexcept { return completed_ != nullptr; }
  bool is_sending_to(std::uint32_t world_rank) const noexcept;
  /// The group is closed: it is neither told of the headers that it sent nor asked to look.
  void forget(const HeaderUser& user) noexcept;
  /// Messages that a transport has been given and still holds. Any thread.
  std::uint32_t sending() const noexcept { return sending_.load(std::memory_order_acquire); }

 private:
  HeaderSlot* take_completed() noexcept;
  void hand_over(HeaderSlot& slot);
  static void on_done(transport::Operation& done) noexcept;

  std::vector<std::unique_ptr<HeaderSlot>> all_;
  std::vector<HeaderUser*> lookers_;
  HeaderSlot* free_ = nullptr;
  HeaderSlot* completed_ = nullptr;
  HeaderSlot** completed_tail_ = &completed_;
  std::size_t in_use_ = 0;
  std::atomic<std::uint32_t> sending_{0};
};

}  // namespace xylem::runtime
