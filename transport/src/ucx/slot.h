// SPDX-License-Identifier: Apache-2.0
//
// What Xylem keeps within a UCX request while it is in flight: the operation it belongs to and its
// place in a ring of such, so that all that is in flight can be walked and nothing is allocated for
// it.
#pragma once

#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::ucx {

class UcxTransport;

struct Slot {
  Slot* next = nullptr;
  Slot* previous = nullptr;
  UcxTransport* owner = nullptr;   ///< Null while recv() has not returned.
  Operation* operation = nullptr;  ///< Null once the operation ended without waiting for UCX.
  Tag* sender_tag = nullptr;       ///< A receive's.
  bool cancelled = false;          ///< cancel() was called, and UCX did not yet follow.
  std::uint32_t epoch = 0;         ///< How many endpoints had ended when a receive was posted.
};

/// A ring of slots around a head, oldest first. It owns none of them.
class SlotRing {
 public:
  SlotRing() noexcept { head_.next = head_.previous = &head_; }
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;
  ~SlotRing() = default;

  bool empty() const noexcept { return head_.next == &head_; }
  template <typename Predicate>
  bool any_of(Predicate predicate) const {
    const Slot* slot = head_.next;
    while (slot != &head_ && !predicate(*slot)) slot = slot->next;
    return slot != &head_;
  }
  Slot& front() noexcept { return *head_.next; }
  void push_back(Slot& slot) noexcept {
    slot.next = &head_;
    slot.previous = head_.previous;
    slot.previous->next = &slot;
    head_.previous = &slot;
  }
  static void remove(Slot& slot) noexcept {
    slot.previous->next = slot.next;
    slot.next->previous = slot.previous;
  }
  /// Empties the ring without touching the slots, whose memory is gone.
  void forget() noexcept { head_.next = head_.previous = &head_; }

 private:
  Slot head_;
};

}  // namespace xylem::transport::ucx
