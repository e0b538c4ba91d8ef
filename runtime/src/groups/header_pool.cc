// SPDX-License-Identifier: Apache-2.0
#include "groups/header_pool.h"

#include <algorithm>
#include <utility>

namespace xylem::runtime {

HeaderSlot& HeaderPool::take() {
  if (free_ == nullptr) {
    free_ = all_.emplace_back(std::make_unique<HeaderSlot>()).get();
  }
  HeaderSlot& slot = *std::exchange(free_, free_->next);
  static_cast<HeaderSlotState&>(slot) = HeaderSlotState{};
  slot.pool = this;
  slot.done = &HeaderPool::on_done;
  ++in_use_;
  return slot;
}

void HeaderPool::give_back(HeaderSlot& slot) noexcept {
  slot.next = free_;
  free_ = &slot;
  --in_use_;
}

void HeaderPool::on_done(transport::Operation& done) noexcept {
  auto& slot = static_cast<HeaderSlot&>(done);
  slot.pool->completed(slot);
}

void HeaderPool::completed(HeaderSlot& slot) noexcept {
  slot.next = nullptr;
  *completed_tail_ = &slot;
  completed_tail_ = &slot.next;
}

void HeaderPool::hand_over_completed() {
  while (HeaderSlot* slot = take_completed()) hand_over(*slot);
}

/// The next slot whose message has completed, or null.
HeaderSlot* HeaderPool::take_completed() noexcept {
  if (completed_ == nullptr) return nullptr;
  HeaderSlot& slot = *completed_;
  completed_ = slot.next;
  if (completed_ == nullptr) completed_tail_ = &completed_;
  if (!slot.incoming) {
    sending_.fetch_sub(1, std::memory_order_release);
    slot.is_sent = false;
  }
  return &slot;
}

void HeaderPool::hand_over(HeaderSlot& slot) {
  if (slot.sender != nullptr) slot.sender->on_sent(slot);
  if (slot.owner != nullptr) {
    slot.owner->on_header(slot);
  } else {
    give_back(slot);
  }
}

unsigned HeaderPool::turn(Token /*token*/) {
  unsigned found = 0;
  // poll_headers() may add users to the list and remove users from it, including itself.
  for (std::size_t i = 0; i < pollers_.size();) {
    HeaderUser* const user = pollers_[i];
    const bool goes_on = user->poll_headers(found);
    const bool is_there = i < pollers_.size() && pollers_[i] == user;
    if (goes_on) {
      i += is_there ? 1 : 0;
    } else if (is_there) {
      pollers_.erase(pollers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return found;
}

void HeaderPool::forget(const HeaderUser& user) noexcept {
  std::erase(pollers_, &user);
  for (const auto& slot : all_) {
    if (slot->sender == &user) slot->sender = nullptr;
  }
}

bool HeaderPool::is_sending_to(std::uint32_t world_rank) const noexcept {
  return std::ranges::any_of(
      all_, [=](const auto& slot) { return slot->is_sent && slot->peer == world_rank; });
}

}  // namespace xylem::runtime
