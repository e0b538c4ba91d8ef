// SPDX-License-Identifier: Apache-2.0
//
// Owner: the owner of a segment, as a peer sees it. A peer checks whether the owner has ended, and
// wakes it if it sleeps.
#pragma once

#include "shm/delays.h"
#include "shm/segment.h"

namespace xylem::transport::shm {

/// Whether a peer has to be woken later.
struct Wake {
  const bool* is_held = nullptr;  ///< See Transport::hold_wakes(). The same for all peers.
  bool is_due = false;            ///< The peer sleeps, and something has been put in place for it.
};

class Owner {
 public:
  /// Stands for an owner that is not known yet.
  Owner() noexcept = default;
  /// `wake` is the owner's eventfd. Segment, descriptor and `later` must outlive this object.
  Owner(const Segment& segment, int wake, Wake* later = nullptr) noexcept
      : state_(&segment.header().state), later_(later), wake_(wake) {}

  bool is_known() const noexcept { return state_ != nullptr; }
  bool is_gone() const noexcept {
    return state_ != nullptr && state_->load(std::memory_order_acquire) == OwnerState::gone;
  }
  /// Call after storing what the owner is to find. Either the owner sees the store before it
  /// sleeps, or this call sees that the owner sleeps (Dekker's algorithm; the other half is
  /// ShmTransport::arm()). While wakes are held, it is only noted that the owner must be woken.
  void wake() const noexcept {
    if (state_ == nullptr) return;
    delay();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    delay();
    if (state_->load(std::memory_order_relaxed) != OwnerState::asleep) return;
    if (later_ != nullptr && *later_->is_held) {
      later_->is_due = true;
    } else {
      ring();
    }
  }
  /// Makes the owner's descriptor readable, whether it sleeps or not.
  void ring() const noexcept;

 private:
  const std::atomic<OwnerState>* state_ = nullptr;
  Wake* later_ = nullptr;
  int wake_ = -1;
};

}  // namespace xylem::transport::shm
