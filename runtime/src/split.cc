// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator. The members tell each other their colors, their keys and the tag slots
// that they use. The members of each color agree on the lowest slot that is free at all of them,
// and claim it. Two splits of different communicators may race for a slot: a member that loses the
// race tells all the others, and all try again.
#include "gather_from_all.h"
#include "group.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

namespace xylem::runtime {

using execution::kMaxGroups;
namespace {

constexpr std::size_t kSlotWords = kMaxGroups / 64;
constexpr int kTries = 16;
/// How often a split waits for a free slot. Slots of poisoned communicators become free after two
/// seconds (registry.h).
constexpr int kWaits = 100;
constexpr std::chrono::milliseconds kWait{50};

/// What each member tells the others.
struct Member {
  std::int32_t color = 0;
  std::int32_t key = 0;
  /// Not 0 if a tag slot of this member is draining, and so becomes free by itself.
  std::uint64_t is_draining = 0;
  std::array<std::uint64_t, kSlotWords> taken{};
};

/// A claimed tag slot. It is freed again, unless a group is made that keeps it.
class SlotClaim {
 public:
  SlotClaim(Registry& registry, std::optional<std::uint32_t> slot)
      : registry_(registry), slot_(slot.value_or(0)), held_(slot && registry.claim_slot(slot_)) {}
  SlotClaim(const SlotClaim&) = delete;
  SlotClaim& operator=(const SlotClaim&) = delete;
  ~SlotClaim() {
    if (held_) registry_.free_slot(slot_);
  }
  bool held() const noexcept { return held_; }
  /// The slot belongs to a group from now on.
  std::uint32_t keep() noexcept {
    held_ = false;
    return slot_;
  }

 private:
  Registry& registry_;
  std::uint32_t slot_;
  bool held_;
};

std::optional<std::uint32_t> lowest_free(const std::array<std::uint64_t, kSlotWords>& taken) {
  for (std::size_t word = 0; word < kSlotWords; ++word) {
    if (taken[word] != ~std::uint64_t{0}) {
      return static_cast<std::uint32_t>(word * 64 +
                                        static_cast<std::size_t>(std::countr_one(taken[word])));
    }
  }
  return std::nullopt;
}

/// The outcome of one attempt at one member, from best to worst. The worst outcome of all members
/// counts.
enum class Outcome : std::uint8_t { well, lost_race, no_slot };

/// The members of one color in order of their keys, and the lowest slot that is free at all of
/// them.
struct Party {
  std::vector<std::uint32_t> ranks;
  std::optional<std::uint32_t> slot;
};

Party party_of(const std::vector<Member>& members, std::int32_t color) {
  Party party;
  std::array<std::uint64_t, kSlotWords> used{};
  for (std::uint32_t rank = 0; rank < members.size(); ++rank) {
    if (color < 0 || members[rank].color != color) continue;
    party.ranks.push_back(rank);
    for (std::size_t word = 0; word < kSlotWords; ++word) used[word] |= members[rank].taken[word];
  }
  std::ranges::stable_sort(party.ranks, {}, [&](std::uint32_t rank) { return members[rank].key; });
  party.slot = lowest_free(used);
  return party;
}

}  // namespace

Result<std::shared_ptr<Group>> Group::split(std::int32_t color, std::int32_t key) {
  if (Status alive = context_->process.check(); !alive) return alive;
  Registry& registry = context_->registry;
  const std::uint64_t number = splits_.fetch_add(1, std::memory_order_relaxed);
  int waits = 0;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Member mine{color, key, registry.is_draining() ? 1U : 0U, {}};
    std::ranges::copy(registry.slots_taken(), mine.taken.begin());
    XYLEM_TRY(const auto members, gather_from_all(*this, mine));
    const Party party = party_of(members, color);
    SlotClaim claim(registry, color < 0 ? std::nullopt : party.slot);
    Outcome outcome = Outcome::well;
    if (color >= 0 && !claim.held()) outcome = party.slot ? Outcome::lost_race : Outcome::no_slot;
    XYLEM_TRY(const auto outcomes, gather_from_all(*this, outcome));
    const Outcome worst = *std::ranges::max_element(outcomes);
    if (worst == Outcome::no_slot) {
      // All members have the same data here, so either all of them wait, or none does.
      const bool may_come_free = std::ranges::any_of(
          members, [](const Member& member) { return member.is_draining != 0; });
      if (!may_come_free || ++waits > kWaits) break;
      std::this_thread::sleep_for(kWait);
      --attempt;
      continue;
    }
    if (worst == Outcome::lost_race) continue;
    if (color < 0) return std::shared_ptr<Group>();
    const std::uint64_t uid =
        combine(combine(this->uid(), number), static_cast<std::uint64_t>(color));
    return make_part(party.ranks, uid, claim.keep());
  }
  return failure(Code::exhausted, fmt::format("no communicator can be made: a rank has {} already, "
                                              "or races for them never end; destroy "
                                              "those that are not in use",
                                              kMaxGroups));
}

/// Makes a group of these ranks of this group, in the given order.
std::shared_ptr<Group> Group::make_part(const std::vector<std::uint32_t>& ranks,
                                        std::uint64_t uid,
                                        std::uint32_t slot) const {
  GroupSpec spec;
  spec.uid = uid;
  spec.slot = slot;
  collectives::CostModel model = this->model();
  model.host.clear();
  for (const std::uint32_t member : ranks) {
    if (member == rank()) spec.rank = static_cast<std::uint32_t>(spec.world_ranks.size());
    spec.world_ranks.push_back(world_rank(member));
    if (!this->model().host.empty()) model.host.push_back(this->model().host[member]);
  }
  return make(context_, observer_, std::move(spec), std::move(model));
}

}  // namespace xylem::runtime
