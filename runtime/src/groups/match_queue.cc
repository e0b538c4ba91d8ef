// SPDX-License-Identifier: Apache-2.0
#include "groups/match_queue.h"

#include <algorithm>
#include <new>
#include <utility>

namespace xylem::runtime {

using collectives::kNone;

void MatchQueue::push(Operation& receive) noexcept {
  receive.lists.match_next = nullptr;
  receive.lists.is_queued = true;
  *receives_end_ = &receive;
  receives_end_ = &receive.lists.match_next;
}

Operation* MatchQueue::take_receive(const MessageHeader& header) noexcept {
  Operation** place = &receives_;
  while (*place != nullptr && !matches(**place, header)) place = &(*place)->lists.match_next;
  Operation* const receive = *place;
  if (receive != nullptr) unlink(place);
  return receive;
}

std::optional<MatchQueue::Arrived> MatchQueue::take_arrived(const Operation& receive) {
  const auto found = std::ranges::find_if(
      arrived_, [&](const Arrived& arrived) { return matches(receive, arrived.header); });
  if (found == arrived_.end()) return std::nullopt;
  Arrived arrived = std::move(*found);
  arrived_.erase(found);
  arrived_bytes_ -= weight_of(arrived);
  return arrived;
}

bool MatchQueue::keep(const MessageHeader& header, const std::byte* payload) {
  try {
    Arrived arrived{header, {}, nullptr};
    if (body_bytes(header) <= kInlineMessage) {
      arrived.payload.assign(payload, payload + body_bytes(header));
    }
    arrived_.push_back(std::move(arrived));
    arrived_bytes_ += weight_of(arrived_.back());
    return true;
  } catch (const std::bad_alloc&) {
    // Drops the queued messages of other ranks, since the caller needs memory to report the
    // failure.
    std::erase_if(arrived_, [](const Arrived& kept) { return kept.self == nullptr; });
    arrived_bytes_ = 0;
    for (const Arrived& left : arrived_) arrived_bytes_ += weight_of(left);
    return false;
  }
}

void MatchQueue::keep_self(const MessageHeader& header, Operation& send) {
  send.lists.is_queued = true;
  arrived_.push_back({header, {}, &send});
  arrived_bytes_ += weight_of(arrived_.back());
}

void MatchQueue::forget(Operation& operation) noexcept {
  for (Operation** place = &receives_; *place != nullptr; place = &(*place)->lists.match_next) {
    if (*place == &operation) return unlink(place);
  }
  std::erase_if(arrived_, [&](const Arrived& arrived) {
    if (arrived.self != &operation) return false;
    arrived_bytes_ -= weight_of(arrived);
    return true;
  });
}

std::uint64_t MatchQueue::weight_of(const Arrived& arrived) noexcept {
  constexpr std::uint64_t kBlock = 32;  // About what the heap adds to each payload.
  return sizeof(Arrived) + (arrived.payload.empty() ? 0 : kBlock + arrived.payload.capacity());
}

bool MatchQueue::matches(const Operation& receive, const MessageHeader& header) noexcept {
  return receive.call.tag == header.tag &&
         (receive.call.peer == kNone || receive.call.peer == header.source);
}

void MatchQueue::unlink(Operation** place) noexcept {
  Operation& receive = **place;
  *place = receive.lists.match_next;
  if (receives_end_ == &receive.lists.match_next) receives_end_ = place;
  receive.lists.is_queued = false;
}

}  // namespace xylem::runtime
