// SPDX-License-Identifier: Apache-2.0
//
// OutgoingRing: the sender's end of a channel's ring. Entries are filled in order. An entry may
// name a slot, which is free again when the receiver has consumed the entry. segment.h describes
// the memory order.
#pragma once

#include "shm/delays.h"
#include "shm/owner.h"
#include "shm/segment.h"
#include "shm/slot_pool.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace xylem::transport::shm {

class OutgoingRing {
 public:
  /// The ring of the channel `channel` in this transport's segment `own`. `slots` manages the slots
  /// of the segment.
  OutgoingRing(std::uint32_t channel, const Segment& own, SlotPool& slots) noexcept
      : channel_(channel), segment_(&own), ring_(own.ring(channel)), slots_(&slots) {}

  /// Connects the ring to its receiver, which reports its progress in `credit`.
  void open(const Owner& receiver, const Credit& credit) noexcept {
    receiver_ = receiver;
    credit_ = &credit;
    // Entries may have been published before open(), without a wake-up of the receiver.
    receiver_.wake();
  }
  const Owner& receiver() const noexcept { return receiver_; }
  /// Null before open().
  const Credit* credit() const noexcept { return credit_; }

  bool is_full() const noexcept { return next_ - retired_ == kEntries; }
  /// Number of entries that the receiver has not consumed yet.
  std::uint32_t unread() const noexcept { return static_cast<std::uint32_t>(next_ - retired_); }

  /// Prepares the next entry; null if the ring is full. The caller fills the entry and then calls
  /// publish() or defer(). If it calls neither, the next call prepares the same entry again.
  Entry* next_entry(EntryKind kind, Tag tag, std::uint64_t bytes) noexcept {
    if (is_full()) retire();
    if (is_full()) return nullptr;
    Entry& entry = ring_[next_ % kEntries];
    slot_of_[next_ % kEntries] = kNoSlot;
    delay();
    entry.kind = kind;
    delay();
    entry.name = static_cast<std::uint64_t>(tag);
    delay();
    entry.size_and_check = kind == EntryKind::request ? bytes : packed(bytes, tag);
    return &entry;
  }
  /// Names a slot in the prepared entry.
  void set_slot(Entry& entry, std::uint32_t slot) noexcept {
    slot_of_[next_ % kEntries] = slot;
    entry.slot = static_cast<std::uint16_t>(slot);
  }
  /// Acquires a slot of `bytes` for the prepared entry. Null if none is free.
  std::byte* acquire_slot(Entry& entry, std::uint64_t bytes) noexcept {
    auto slot = slots_->acquire(channel_, bytes);
    if (!slot && retire()) slot = slots_->acquire(channel_, bytes);
    if (!slot) return nullptr;
    set_slot(entry, *slot);
    return segment_->slot(*slot);
  }
  /// Releases the slot of the prepared entry. Call this if the entry will not be published.
  void release_slot() noexcept { slots_->release(slot_of_[next_ % kEntries]); }

  /// Makes the prepared entry visible to the receiver.
  void publish() noexcept { publish(next_++); }
  /// Reserves the prepared entry, which a device is still filling. Returns its number, for a later
  /// publish(number).
  std::uint64_t defer() noexcept { return next_++; }
  void publish(std::uint64_t number) noexcept {
    delay();
    ring_[number % kEntries].turn.store(turn_of(number), std::memory_order_release);
    receiver_.wake();
  }
  /// Publishes a deferred entry that a device could not fill; the receiver skips it. Without this,
  /// the receiver could not reach later entries, since it consumes entries in order.
  void publish_nothing(std::uint64_t number) noexcept {
    ring_[number % kEntries].kind = EntryKind::nothing;
    publish(number);
  }

  /// Reclaims the entries that the receiver has consumed, with their slots. True if any were
  /// reclaimed.
  bool retire() noexcept {
    if (credit_ == nullptr) return false;
    delay();
    // The receiver is not trusted: it cannot have consumed more entries than were sent.
    const std::uint64_t consumed =
        std::min(credit_->consumed.load(std::memory_order_acquire), next_);
    const bool has_any = retired_ < consumed;
    retire_until(consumed);
    holds_ = credit_->holds.load(std::memory_order_relaxed);
    return has_any;
  }
  /// Reclaims all entries of a receiver that has ended.
  void retire_all() noexcept { retire_until(next_); }
  /// Whether unconsumed entries still occupy slots.
  bool has_slots_out() const noexcept {
    for (std::uint64_t entry = retired_; entry < next_; ++entry) {
      if (slot_of_[entry % kEntries] != kNoSlot) return true;
    }
    return false;
  }

  /// Credit::holds (hold.h), as of the last retire() or read_holds().
  std::uint64_t holds() const noexcept { return holds_; }
  std::uint64_t read_holds() noexcept {
    delay();
    return holds_ = credit_->holds.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kNoSlot = ~0U;

  void retire_until(std::uint64_t entry) noexcept {
    for (; retired_ < entry; ++retired_) {
      const std::uint32_t slot = slot_of_[retired_ % kEntries];
      if (slot != kNoSlot) slots_->release(slot);
    }
  }

  std::uint32_t channel_;
  const Segment* segment_;
  Entry* ring_;
  SlotPool* slots_;
  Owner receiver_;
  const Credit* credit_ = nullptr;
  std::uint64_t next_ = 0;     ///< Number of the entry to be filled next.
  std::uint64_t retired_ = 0;  ///< Number of entries whose slots have been reclaimed.
  std::uint64_t holds_ = 0;
  std::array<std::uint32_t, kEntries> slot_of_{};
};

}  // namespace xylem::transport::shm
