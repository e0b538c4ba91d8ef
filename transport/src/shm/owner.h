// SPDX-License-Identifier: Apache-2.0
//
// The owner of a segment, as a peer sees it: gone or not, and woken if it sleeps.
#pragma once

#include "shm/delays.h"
#include "shm/segment.h"

namespace xylem::transport::shm {

class Owner {
 public:
  /// Not known yet.
  Owner() noexcept = default;
  /// `wake`: its eventfd. Both outlive this.
  Owner(const Segment& segment, int wake) noexcept : state_(&segment.header().state), wake_(wake) {}

  bool is_known() const noexcept { return state_ != nullptr; }
  bool is_gone() const noexcept {
    return state_ != nullptr && state_->load(std::memory_order_acquire) == OwnerState::gone;
  }
  /// Call after what it is to find was stored: either it sees that before it sleeps, or we see here
  /// that it sleeps (Dekker; the other half is ShmTransport::arm()).
  void wake() const noexcept {
    if (state_ == nullptr) return;
    delay();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    delay();
    if (state_->load(std::memory_order_relaxed) == OwnerState::asleep) ring();
  }
  /// Makes its descriptor readable in any case.
  void ring() const noexcept;

 private:
  const std::atomic<OwnerState>* state_ = nullptr;
  int wake_ = -1;
};

}  // namespace xylem::transport::shm
