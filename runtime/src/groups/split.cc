// SPDX-License-Identifier: Apache-2.0
//
// Ways to make a communicator. In a split, the members of an existing communicator tell each other
// their colors, their keys, and the seats that they have taken; the members of each color form a
// communicator. Members may also have told each other their seats by themselves (seat.h). A
// companion has the members and the seats of its communicator.
#include "groups/gather_from_all.h"
#include "groups/group.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

namespace xylem::runtime {

using execution::kMaxGroups;
namespace {

/// How long a rank waits for a free seat. Seats of poisoned communicators become free after two
/// seconds (registry.h).
constexpr std::chrono::seconds kLongestWait{5};
constexpr std::chrono::milliseconds kWait{50};

/// What each member tells the others.
struct Choice {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t seat = 0;  ///< 0 if this member needs none, or has none.
};

}  // namespace

Result<Seat> Group::take_seat(const std::shared_ptr<Context>& context) {
  const Deadline deadline = Deadline::after(kLongestWait);
  Registry& registry = context->registry;
  for (;;) {
    XYLEM_TRY(context->process.check());
    const bool may_come_free = registry.is_draining();
    if (const auto slot = registry.claim_slot()) return Seat(context, *slot);
    if (!may_come_free || deadline.passed()) break;
    std::this_thread::sleep_for(kWait);
  }
  return failure(Code::exhausted,
                 fmt::format("rank {} has {} communicators already, and cannot make another; "
                             "destroy those that are not in use",
                             context->rank(), kMaxGroups),
                 context->rank());
}

Result<std::shared_ptr<Group>> Group::split(std::int32_t color, std::int32_t key) {
  if (Status alive = context_->process.check(); !alive) return alive;
  const std::uint64_t number = splits_.fetch_add(1, std::memory_order_relaxed);
  Seat seat;
  if (color >= 0) {
    // Without a seat, this rank must still tell the others.
    if (auto taken = take_seat(context_)) seat = *std::move(taken);
  }
  XYLEM_TRY(const auto choices, gather_from_all(*this, Choice{color, key, seat.number()}));
  std::vector<std::uint32_t> members;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    if (choices[rank].color >= 0 && choices[rank].seat == 0) {
      return failure(Code::exhausted,
                     fmt::format("no communicator can be made: rank {} has {} already; destroy "
                                 "those that are not in use",
                                 world_rank(rank), kMaxGroups),
                     world_rank(rank));
    }
    if (color >= 0 && choices[rank].color == color) members.push_back(rank);
  }
  if (color < 0) return std::shared_ptr<Group>();
  std::ranges::stable_sort(members, {}, [&](std::uint32_t rank) { return choices[rank].key; });
  Formation formation;
  formation.uid = combine(combine(uid(), number), static_cast<std::uint64_t>(color));
  for (const std::uint32_t member : members) {
    formation.members.push_back({world_rank(member), choices[member].seat});
  }
  return form(std::move(seat), formation);
}

/// Whether a communicator can be formed like this by the rank that holds this seat.
Status Group::check(const Formation& formation, std::uint32_t seat) const {
  const auto refuse = [](std::string why) {
    return failure(Code::invalid_argument, "form: " + std::move(why));
  };
  if (seat == 0) return refuse("the seat is empty; pass one of take_seat()");
  std::unordered_set<std::uint32_t> ranks;
  bool is_member = false;
  for (const auto& [rank, its_seat] : formation.members) {
    if (!rank_of(rank)) {
      return refuse(fmt::format("rank {} of a job of {} ranks", rank, size()));
    }
    if (!ranks.insert(rank).second) return refuse(fmt::format("rank {} is a member twice", rank));
    if (its_seat == 0 || its_seat >= kMaxGroups) {
      return refuse(
          fmt::format("rank {} has seat {}; seats are 1 to {}", rank, its_seat, kMaxGroups - 1));
    }
    if (rank != spec_.own_world_rank()) continue;
    is_member = true;
    if (its_seat != seat) {
      return refuse(fmt::format("this rank, {}, is given with seat {}, and holds seat {}", rank,
                                its_seat, seat));
    }
  }
  if (!is_member) return refuse(fmt::format("this rank, {}, is no member", spec_.own_world_rank()));
  if (context_->registry.find(formation.uid) != nullptr) {
    return refuse(fmt::format("a communicator with uid {:#x} exists; draw another number for each",
                              formation.uid));
  }
  return {};
}

Result<std::shared_ptr<Group>> Group::form(Seat seat, const Formation& formation) const {
  if (Status alive = context_->process.check(); !alive) return alive;
  XYLEM_TRY(check(formation, seat.number()));
  GroupSpec spec;
  spec.uid = formation.uid;
  spec.timeout = formation.timeout;
  collectives::CostModel model = this->model();
  model.host.clear();
  for (const auto& [rank, its_seat] : formation.members) {
    if (rank == spec_.own_world_rank()) spec.rank = spec.size();
    spec.world_ranks.push_back(rank);
    spec.slots.push_back(its_seat);
    const auto place = rank_of(rank);
    if (place && !this->model().host.empty()) {
      model.host.push_back(this->model().host[*place]);
    }
  }
  auto group = make(context_, observer_, std::move(spec), std::move(model));
  seat.keep();
  return group;
}

std::shared_ptr<Group> Group::self() noexcept {
  if (parent_ == nullptr) return shared_from_this();
  return {parent_->shared_from_this(), this};
}

Result<std::shared_ptr<Group>> Group::companion() {
  if (Status alive = context_->process.check(); !alive) return alive;
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no companion of its own");
  }
  const std::lock_guard lock(companion_mutex_);
  if (companion_ == nullptr) {
    GroupSpec spec = spec_;
    spec.is_companion = true;
    spec.uid = companion_uid();
    const auto made = make(context_, observer_, std::move(spec), model());
    context_->progress.with_token([&] {
      companion_ = made;
      made->parent_ = this;
      if (has_left_) made->leave();
      // Either may have failed before they knew each other.
      if (!health_) made->poison(health_);
      if (!made->health_) poison(made->health_);
    });
  }
  return std::shared_ptr<Group>(shared_from_this(), companion_.get());
}

}  // namespace xylem::runtime
