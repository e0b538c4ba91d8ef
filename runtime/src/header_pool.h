// SPDX-License-Identifier: Apache-2.0
//
// The headers of point-to-point messages, and the slots in which they travel: pooled, as transports
// may hold one for longer than its communicator lives.
#pragma once

#include "xylem/base/status.h"
#include "xylem/transport/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::runtime {

/// What precedes every message on the wire. Little-endian, as every machine Xylem runs on.
struct MessageHeader {
  std::uint64_t group = 0;   ///< Its uid: of an earlier group of this slot a message may be left.
  std::uint64_t number = 0;  ///< Of this ordered pair, from 0.
  std::uint64_t count = 0;   ///< Elements.
  std::uint32_t source = 0;  ///< Rank in the group.
  std::uint32_t tag = 0;
  std::uint8_t type = 0;
  std::uint8_t reserved[7] = {};
};
static_assert(sizeof(MessageHeader) == 40);

/// Messages up to this many bytes travel within their header.
inline constexpr std::size_t kInlineMessage = 4096;

struct HeaderSlot;

/// Who posts slots to receive headers, and sends headers. Token holder only.
class HeaderUser {
 public:
  /// A slot that it posted has ended, well or not (`code`). The slot is the user's to give back.
  virtual void on_header(HeaderSlot& slot) = 0;
  /// A transport holds a header no more that was to be sent; it has failed if `code` says so. The
  /// slot goes back by itself.
  virtual void on_sent(const HeaderSlot& slot) = 0;

 protected:
  ~HeaderUser() = default;
};

/// What is known of a header on its way. Replaced as a whole between two lives.
struct HeaderSlotState : transport::Operation {
  class HeaderPool* pool = nullptr;
  HeaderUser* owner = nullptr;  ///< Of a posted one; null once the group is closed.
  transport::Transport* transport = nullptr;
  HeaderSlot* next = nullptr;
  bool incoming = false;
  bool is_unposted = false;      ///< Was taken from the ring, and is not posted again.
  bool is_sent = false;          ///< Outgoing, and its transport holds it.
  std::uint32_t peer = 0;        ///< World rank to which an outgoing one goes,
  std::uint32_t to = 0;          ///< its rank in the group,
  HeaderUser* sender = nullptr;  ///< and who waits for it to go; null once the group is closed.
};

/// A header, with its payload if that is small. Belongs to the pool, so it may outlive its group.
struct HeaderSlot : HeaderSlotState {
  MessageHeader header;
  std::byte payload[kInlineMessage];
};

/// Header slots of one job. Token holder only.
class HeaderPool {
 public:
  HeaderSlot& take();
  void give_back(HeaderSlot& slot) noexcept;
  /// An outgoing slot is handed to its transport.
  void note_sent(HeaderSlot& slot) noexcept {
    slot.is_sent = true;
    sending_.fetch_add(1, std::memory_order_relaxed);
  }
  /// A slot's message has completed within the call that posted it, as by its callback.
  void completed(HeaderSlot& slot) noexcept;
  /// Tells the users of all completed slots, and takes back those that have none. After each round
  /// of transport progress.
  void hand_over_completed();
  /// Slots posted to receive, or that hold what was received.
  std::size_t receiving() const noexcept { return in_use_ - sending(); }
  bool has_completed() const noexcept { return completed_ != nullptr; }
  bool is_sending_to(std::uint32_t world_rank) const noexcept;
  /// The group is closed: it hears of its headers no more.
  void forget_sender(const HeaderUser& sender) noexcept;
  /// Messages handed to a transport that it still holds. Any thread.
  std::uint32_t sending() const noexcept { return sending_.load(std::memory_order_acquire); }

 private:
  HeaderSlot* take_completed() noexcept;
  void hand_over(HeaderSlot& slot);
  static void on_done(transport::Operation& done) noexcept;
  std::vector<std::unique_ptr<HeaderSlot>> all_;
  HeaderSlot* free_ = nullptr;
  HeaderSlot* completed_ = nullptr;
  HeaderSlot** completed_tail_ = &completed_;
  std::size_t in_use_ = 0;
  std::atomic<std::uint32_t> sending_{0};
};

}  // namespace xylem::runtime
