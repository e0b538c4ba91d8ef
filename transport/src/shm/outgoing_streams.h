// SPDX-License-Identifier: Apache-2.0
//
// OutgoingStreams: the stream ids of an outgoing channel. Each announced message occupies one id.
//
//   free ── acquire_id ──► announced ── the receiver grants it, then finish ──► free
//                              └─ withdraw ──► withdrawn ── the receiver grants it ──► free
//
// The receiver grants a stream when it has fetched the message, or when it needs the message in
// fragments. It grants a withdrawn stream, at the latest, when it has consumed the entry that
// reports the withdrawal and has released any view of the message.
#pragma once

#include "shm/delays.h"
#include "shm/outgoing_ring.h"
#include "shm/segment.h"
#include "xylem/transport/views.h"

#include <bit>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class OutgoingStreams {
 public:
  /// Reports in `withdrawal` which streams are withdrawn.
  explicit OutgoingStreams(Withdrawal& withdrawal) noexcept : withdrawal_(&withdrawal) {}

  /// Whether an id is free for a message. Of the ids for messages that do not fit into a slot, half
  /// are reserved for messages that the receiver has requested (hold.h). So a requested message
  /// never waits for an unrequested one.
  bool has_id(bool fits_slot, bool is_requested) const noexcept {
    static_assert(2 * kMostAnnounced == kStreams / 2);
    const std::uint64_t ids = ids_for(fits_slot);
    const int in_use = std::popcount(used_ & ids);
    return in_use < (fits_slot || is_requested ? std::popcount(ids) : int{kMostAnnounced});
  }
  /// Acquires a free id. Requires has_id().
  std::uint8_t acquire_id(bool fits_slot) noexcept {
    const auto id = static_cast<std::uint8_t>(std::countr_zero(~used_ & ids_for(fits_slot)));
    used_ |= bit_of(id);
    return id;
  }

  /// A bit for each stream.
  struct Grants {
    std::uint64_t granted = 0;  ///< The receiver has decided where the message goes.
    std::uint64_t fetched = 0;  ///< Valid if granted: the receiver has the whole message.
  };
  /// The streams that are granted and not finished. `credit` is null before the receiver has
  /// accepted the channel.
  Grants grants(const Credit* credit) const noexcept {
    if (credit == nullptr) return {};
    delay();
    const std::uint64_t granted = credit->granted.load(std::memory_order_acquire) ^ granted_;
    if (granted == 0) return {};
    delay();
    return {granted, credit->fetched.load(std::memory_order_relaxed)};
  }
  /// Releases the id of a granted stream.
  void finish(std::uint8_t id) noexcept {
    granted_ ^= bit_of(id);
    used_ &= ~bit_of(id);
    if (is_ended_ || (marked_ & bit_of(id)) == 0) return;
    marked_ &= ~bit_of(id);
    delay();
    withdrawal_->withdrawn.store(marked_, std::memory_order_relaxed);
  }

  /// Withdraws a stream. After this call, the application may overwrite the message.
  void withdraw(std::uint8_t id) {
    mark_withdrawn(bit_of(id));
    withdrawn_.push_back({id, false});
  }
  /// Withdraws all streams, and keeps their marks forever. Call this when the endpoint is closed.
  void withdraw_all() noexcept {
    mark_withdrawn(~std::uint64_t{0});
    end();
  }
  /// Call this when the receiver has ended: no grants will arrive.
  void end() noexcept {
    withdrawn_.clear();
    is_ended_ = true;
  }
  bool has_withdrawn() const noexcept { return !withdrawn_.empty(); }
  /// Publishes an entry for each withdrawn stream that the receiver has not fetched, and releases
  /// the ids of the withdrawn streams that it has granted. Returns the amount of work done.
  unsigned pump_withdrawn(OutgoingRing& ring) {
    if (withdrawn_.empty()) return 0;
    unsigned count = 0;
    const auto [granted, fetched] = grants(ring.credit());
    std::erase_if(withdrawn_, [&](Withdrawn& stream) {
      const std::uint64_t bit = bit_of(stream.id);
      if (!stream.is_in_ring && (granted & fetched & bit) == 0) {
        Entry* entry = ring.next_entry(EntryKind::withdrawn, 0, 0);
        if (entry == nullptr) return false;
        entry->id = stream.id;
        ring.publish();
        stream.is_in_ring = true;
        ++count;
      }
      if ((granted & bit) == 0) return false;
      finish(stream.id);
      ++count;
      return true;
    });
    return count;
  }

 private:
  struct Withdrawn {
    std::uint8_t id = 0;
    bool is_in_ring = false;
  };

  /// A mask of the ids that a message may use. The lower half is for messages that fit into a slot,
  /// the upper half for longer messages.
  static constexpr std::uint64_t ids_for(bool fits_slot) noexcept {
    constexpr std::uint64_t kLow = bit_of(kStreams / 2) - 1;
    return fits_slot ? kLow : ~kLow;
  }
  /// Sets the mark. The fence orders this store before everything that the application writes to
  /// the message later (segment.h).
  void mark_withdrawn(std::uint64_t streams) noexcept {
    marked_ |= streams;
    delay();
    withdrawal_->withdrawn.store(marked_, std::memory_order_relaxed);
    delay();
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  Withdrawal* withdrawal_;
  std::uint64_t used_ = 0;     ///< A bit for each id.
  std::uint64_t granted_ = 0;  ///< Credit::granted without grants that finish() has not processed.
  std::uint64_t marked_ = 0;   ///< The value last stored in Withdrawal::withdrawn.
  std::vector<Withdrawn> withdrawn_;
  bool is_ended_ = false;
};

}  // namespace xylem::transport::shm
