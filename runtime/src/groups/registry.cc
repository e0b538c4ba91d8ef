// SPDX-License-Identifier: Apache-2.0
#include "groups/registry.h"

#include "xylem/execution/tag.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace xylem::runtime {

using execution::group_tag;
using execution::kGroupMask;
using execution::kMaxGroups;
using execution::TagKind;
namespace {

/// Messages to a poisoned group are dropped for at least this long. The other members are informed
/// at once and cancel their sends. Failed operations end within Watch::kQuarantine.
constexpr std::chrono::milliseconds kDrain{2000};

constexpr std::uint64_t bit_of(std::uint32_t slot) noexcept {
  return std::uint64_t{1} << (slot % 64);
}

}  // namespace

Registry::Registry() : slots_(kMaxGroups / 64, 0) {}

Registry::~Registry() = default;

std::shared_ptr<Group> Registry::find(std::uint64_t uid) const {
  const Lock lock(mutex_);
  const auto found = groups_.find(uid);
  return found == groups_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Group>> Registry::groups() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Group>> alive;
  for (const auto& [uid, group] : groups_) {
    if (auto shared = group.lock()) alive.push_back(std::move(shared));
  }
  return alive;
}

std::optional<std::uint32_t> Registry::claim_slot() {
  const Lock lock(mutex_);
  for (std::uint32_t word = 0; word < slots_.size(); ++word) {
    if (slots_[word] == ~std::uint64_t{0}) continue;
    const auto slot = word * 64 + static_cast<std::uint32_t>(std::countr_one(slots_[word]));
    slots_[word] |= bit_of(slot);
    return slot;
  }
  return std::nullopt;
}

void Registry::free_slot(std::uint32_t slot) noexcept {
  if (slot == 0) return;  // Slot 0 always belongs to the world.
  const Lock lock(mutex_);
  slots_[slot / 64] &= ~bit_of(slot);
}

void Registry::defer_delete(DeferredDelete group) {
  const Lock lock(mutex_);
  if (is_closed_) return;
  deferred_.push_back(std::move(group));
  has_deferred_.store(true, std::memory_order_relaxed);
}

void Registry::delete_deferred(Token /*token*/) {
  // The deletion of a group may drop the last reference to another group.
  while (has_deferred_.load(std::memory_order_relaxed)) {
    std::vector<DeferredDelete> dead;  // Destroyed after the lock is released.
    const Lock lock(mutex_);
    dead.swap(deferred_);
    has_deferred_.store(false, std::memory_order_relaxed);
  }
}

void Registry::enlist(Token /*token*/, std::uint64_t uid, std::weak_ptr<Group> group) {
  const Lock lock(mutex_);
  groups_[uid] = std::move(group);
}

void Registry::delist(Token /*token*/, std::uint64_t uid) noexcept {
  const Lock lock(mutex_);
  groups_.erase(uid);
}

void Registry::vacate(Token /*token*/, std::uint32_t slot) noexcept {
  const auto drain = std::ranges::find(drains_, slot, &Drain::slot);
  if (drain != drains_.end() && Clock::now() < drain->until) {
    drain->is_group_gone = true;
    return;
  }
  if (drain != drains_.end()) drains_.erase(drain);
  free_slot(slot);
}

void Registry::on_poisoned(Token /*token*/, std::uint32_t slot) {
  drains_.push_back({slot, Clock::now() + kDrain});
  is_draining_.store(true, std::memory_order_relaxed);
}

void Registry::abandon(Token token, std::uint32_t slot) {
  on_poisoned(token, slot);
  drains_.back().is_group_gone = true;
}

unsigned Registry::turn(Token token) {
  for (const Drain& drain : drains_) {
    const auto discard = [&](TagKind kind) {
      wires_->discard(token, group_tag(kind, drain.slot), kGroupMask);
    };
    discard(TagKind::collective);
    discard(TagKind::companion);
    discard(TagKind::message_body);
    if (drain.is_group_gone) discard(TagKind::message_header);
  }
  delete_deferred(token);
  return 0;
}

void Registry::tick(Token /*token*/, Clock::time_point now) {
  std::erase_if(drains_, [&](const Drain& drain) {
    const bool over = drain.is_group_gone && now >= drain.until;
    if (over) free_slot(drain.slot);
    return over;
  });
  is_draining_.store(
      std::ranges::any_of(drains_, [&](const Drain& drain) { return now < drain.until; }),
      std::memory_order_relaxed);
}

void Registry::close() {
  std::vector<DeferredDelete> dead;  // Destroyed after the lock is released.
  const Lock lock(mutex_);
  is_closed_ = true;
  dead.swap(deferred_);
}

}  // namespace xylem::runtime
