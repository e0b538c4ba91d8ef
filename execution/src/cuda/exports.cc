// SPDX-License-Identifier: Apache-2.0
#include "cuda/exports.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace xylem::execution::cuda {

void Exports::start(SharedMemory& shared, std::vector<bool> are_elsewhere) {
  shared_ = &shared;
  are_elsewhere_ = std::move(are_elsewhere);
}

Exports::Found Exports::find(const std::byte* data, std::uint64_t bytes, const Use& use) {
  const auto found = DeviceAllocation::of(driver_, address(data));
  if (!found || found->has_ipc == 0 ||
      !contains(found->start, found->bytes, address(data), bytes)) {
    return {};
  }
  std::optional<transport::DevicePlace> place;
  if (!is_known(found->number)) place = shared_->name(*found);  // Without the mutex: this may wait.
  const Lock lock(mutex_);
  if (place) add(*found, *place, use);
  const auto known = known_.find(found->number);
  if (known == known_.end() || known->second.is_refused) return {};
  if (known->second.unanswered > 0) return {.is_opening = true};
  known->second.last_call = use.call;
  known->second.is_captured |= use.is_captured;
  return {.exported = &known->second};
}

bool Exports::is_known(std::uint64_t number) {
  const Lock lock(mutex_);
  return known_.contains(number);
}

void Exports::add(const DeviceAllocation& found,
                  const transport::DevicePlace& place,
                  const Use& use) {
  for (auto& [number, known] : known_) {
    known.is_freed |=
        known.start < found.start + found.bytes && found.start < known.start + known.bytes;
  }
  if (!make_room(use)) return;
  Known& added = known_[found.number];
  added.start = found.start;
  added.bytes = found.bytes;
  added.place = place;
  added.at.fill(found.start);
  added.unanswered = static_cast<std::uint32_t>(std::ranges::count(are_elsewhere_, true));
  added.last_call = use.call;
  post_to_all({.kind = MeshMessage::Kind::share, .bytes = found.bytes, .place = place});
}

/// Closes the allocations that have been freed, and the least recently used one if there are kMost
/// and it has not been used lately. False if there is no room for another allocation.
bool Exports::make_room(const Use& use) {
  for (auto at = known_.begin(); at != known_.end();) {
    const auto next = std::next(at);
    if (at->second.is_freed && at->second.is_idle(use)) close(at);
    at = next;
  }
  if (known_.size() < kMost) return true;
  auto oldest = known_.end();
  for (auto at = known_.begin(); at != known_.end(); ++at) {
    const Known& known = at->second;
    const bool may_go =
        !known.is_captured && known.is_idle(use) && known.last_call + kUnused <= use.call;
    const bool is_older = oldest == known_.end() || known.last_call < oldest->second.last_call;
    if (may_go && is_older) oldest = at;
  }
  if (oldest == known_.end()) return false;
  close(oldest);
  return true;
}

void Exports::close(Table::iterator at) {
  post_to_all({.kind = MeshMessage::Kind::closed, .place = at->second.place});
  known_.erase(at);
}

void Exports::post_to_all(const MeshMessage& message) {
  for (std::uint32_t peer = 0; peer < are_elsewhere_.size(); ++peer) {
    if (are_elsewhere_[peer]) post(peer, message);
  }
}

void Exports::post(std::uint32_t to, const MeshMessage& message) {
  posts_.push_back({to, message});
  has_posts_.store(true, std::memory_order_release);
}

std::vector<MeshPost> Exports::take_posts() {
  const Lock lock(mutex_);
  has_posts_.store(false, std::memory_order_relaxed);
  return std::exchange(posts_, {});
}

void Exports::on_message(std::uint32_t from, const MeshMessage& message) {
  if (from >= are_elsewhere_.size() || !are_elsewhere_[from]) return;
  switch (message.kind) {
    case MeshMessage::Kind::share: {
      // Opening takes long, so the mutex is not held.
      const std::byte* const opened = shared_->open(message.place, message.bytes, {});
      const Lock lock(mutex_);
      return post(
          from,
          {.kind = MeshMessage::Kind::opened, .address = address(opened), .place = message.place});
    }
    case MeshMessage::Kind::closed: return shared_->close(message.place, {});
    case MeshMessage::Kind::opened: break;
  }
  const Lock lock(mutex_);
  const auto known = known_.find(message.place.allocation);
  if (known == known_.end() || known->second.unanswered == 0) return;
  known->second.at[from] = message.address;
  known->second.is_refused |= message.address == 0;
  --known->second.unanswered;
}

}  // namespace xylem::execution::cuda
