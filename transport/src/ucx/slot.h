// SPDX-License-Identifier: Apache-2.0
//
// Slot: what Xylem stores in a UCX request while it is in flight: its operation, and pointers to
// the neighbours in a circular list of slots. The list allows walking over all requests in flight
// without any allocation. (A slot of shared memory is something else.)
#pragma once

#include "xylem/transport/transport.h"

#include <cstdint>

namespace xylem::transport::ucx {

class UcxTransport;

struct Slot {
  Slot* next = nullptr;
  Slot* previous = nullptr;
  UcxTransport* owner = nullptr;  ///< Null until recv() has returned.
  /// Null if the operation has ended before UCX finished the request.
  Operation* operation = nullptr;
  Tag* sender_tag = nullptr;  ///< Set for receives only.
  bool cancelled = false;     ///< cancel() was called, and UCX has not completed the request yet.
  std::uint32_t epoch = 0;    ///< For a receive: the number of ended endpoints when it was posted.
};

/// A circular list of slots, oldest first. It does not own them.
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
  /// Empties the ring without touching the slots, whose memory has been freed.
  void forget() noexcept { head_.next = head_.previous = &head_; }

 private:
  Slot head_;
};

}  // namespace xylem::transport::ucx
