// SPDX-License-Identifier: Apache-2.0
//
// OutgoingRing: the ring of a channel as its sender writes it. Entries are filled in order and may
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
  /// The ring of the channel `channel` in this transport's segment `own`. `slots` manages its
  /// slots.
  OutgoingRing(std::uint32_t channel, const Segment& own, SlotPool& slots) noexcept
      : channel_(channel), segment_(&own), ring_(own.ring(channel)), slots_(&slots) {}

  /// Connects the ring to its receiver, which reports its progress in `credit`.
  void open(const Owner& receiver, const Credit& credit) noexcept {
    receiver_ = receiver;
    credit_ = &credit;
    // The receiver may be asleep while entries already wait in the ring.
    receiver_.wake();
  }
  const Owner& receiver() const noexcept { return receiver_; }
  /// Null before open().
  const Credit* credit() const noexcept { return credit_; }

  bool is_full() const noexcept { return next_ - retired_ == kEntries; }
  /// Number of entries that the receiver has not consumed yet.
  std::uint32_t unread() const noexcept { return static_cast<std::uint32_t>(next_ - retired_); }

  /// Prepares the next entry; null if the ring is full. publish() or defer() must follow, unless
  /// the entry is not needed.
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
  /// Names a slot in the entry that was prepared.
  void set_slot(Entry& entry, std::uint32_t slot) noexcept {
    slot_of_[next_ % kEntries] = slot;
    entry.slot = static_cast<std::uint16_t>(slot);
  }
  /// Acquires a slot of `bytes` for the entry that was prepared. Null if none is free.
  std::byte* acquire_slot(Entry& entry, std::uint64_t bytes) noexcept {
    auto slot = slots_->acquire(channel_, bytes);
    if (!slot && retire()) slot = slots_->acquire(channel_, bytes);
    if (!slot) return nullptr;
    set_slot(entry, *slot);
    return segment_->slot(*slot);
  }
  /// Releases the slot of an entry that is not needed after all.
  void release_slot() noexcept { slots_->release(slot_of_[next_ % kEntries]); }

  /// Makes the entry that was prepared visible to the receiver.
  void publish() noexcept { publish(next_++); }
  /// Leaves the entry that was prepared to a device, which still fills it. Returns its number, for
  /// publish(number).
  std::uint64_t defer() noexcept { return next_++; }
  void publish(std::uint64_t number) noexcept {
    delay();
    ring_[number % kEntries].turn.store(turn_of(number), std::memory_order_release);
    receiver_.wake();
  }
  /// Publishes a deferred entry that could not be filled. The receiver consumes entries in order,
  /// so it could not reach later entries otherwise.
  void publish_nothing(std::uint64_t number) noexcept {
    ring_[number % kEntries].kind = EntryKind::nothing;
    publish(number);
  }

  /// Reclaims the entries that the receiver has consumed, with their slots. True if there were any.
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
