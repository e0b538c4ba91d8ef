// SPDX-License-Identifier: Apache-2.0
#include "groups/split.h"

#include "groups/gather_from_all.h"
#include "groups/seats.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace xylem::runtime {

using execution::kMaxGroups;
namespace {

/// What each member sends to the others.
struct Choice {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t seat = 0;  ///< 0 if this member needs none, or if none is free.
};

}  // namespace

Result<std::shared_ptr<Group>> split(Group& group, std::int32_t color, std::int32_t key) {
  XYLEM_TRY(group.context()->process.check());
  const GroupSpec& spec = group.spec();
  const std::uint64_t number = group.number_split();
  Seat seat;
  if (color >= 0) {
    // A rank that gets no seat still takes part in the exchange, so that all ranks fail.
    if (auto taken = Seats::take(group.context())) seat = *std::move(taken);
  }
  const Submit submit = [&](Call&& call) { return group.submit(std::move(call)); };
  XYLEM_TRY(const auto choices,
            gather_from_all(submit, spec.size(), Choice{color, key, seat.number()}));
  std::vector<std::uint32_t> members;
  for (std::uint32_t rank = 0; rank < spec.size(); ++rank) {
    if (choices[rank].color >= 0 && choices[rank].seat == 0) {
      return failure(Code::exhausted,
                     fmt::format("no communicator can be made: rank {} has {} already; destroy "
                                 "those that are not in use",
                                 spec.world_ranks[rank], kMaxGroups),
                     spec.world_ranks[rank]);
    }
    if (color >= 0 && choices[rank].color == color) members.push_back(rank);
  }
  if (color < 0) return std::shared_ptr<Group>();
  std::ranges::stable_sort(members, {}, [&](std::uint32_t rank) { return choices[rank].key; });
  Formation formation;
  formation.has_same_memory = group.binding() != Binding::none;
  formation.uid = combine(combine(spec.uid, number), static_cast<std::uint64_t>(color));
  for (const std::uint32_t member : members) {
    formation.members.push_back({spec.world_ranks[member], choices[member].seat});
  }
  return form(group, std::move(seat), formation);
}

namespace {

/// Fails if this rank, which holds the seat `seat`, cannot form this communicator.
Status check(const Group& parent, const Formation& formation, std::uint32_t seat) {
  const GroupSpec& spec = parent.spec();
  const auto refuse = [](std::string why) {
    return failure(Code::invalid_argument, "form: " + std::move(why));
  };
  if (seat == 0) return refuse("the seat is empty; pass one of take_seat()");
  std::unordered_set<std::uint32_t> ranks;
  bool is_member = false;
  for (const auto& [rank, its_seat] : formation.members) {
    if (!spec.rank_of(rank)) {
      return refuse(fmt::format("rank {} of a job of {} ranks", rank, spec.size()));
    }
    if (!ranks.insert(rank).second) return refuse(fmt::format("rank {} is a member twice", rank));
    if (its_seat == 0 || its_seat >= kMaxGroups) {
      return refuse(
          fmt::format("rank {} has seat {}; seats are 1 to {}", rank, its_seat, kMaxGroups - 1));
    }
    if (rank != spec.own_world_rank()) continue;
    is_member = true;
    if (its_seat != seat) {
      return refuse(fmt::format("this rank, {}, is given with seat {}, and holds seat {}", rank,
                                its_seat, seat));
    }
  }
  if (!is_member) return refuse(fmt::format("this rank, {}, is no member", spec.own_world_rank()));
  if (parent.context()->registry.find(formation.uid) != nullptr) {
    return refuse(fmt::format("a communicator with uid {:#x} exists; draw another number for each",
                              formation.uid));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Group>> form(Group& parent, Seat seat, const Formation& formation) {
  XYLEM_TRY(parent.context()->process.check());
  XYLEM_TRY(check(parent, formation, seat.number()));
  GroupSpec spec;
  spec.uid = formation.uid;
  spec.has_same_memory = formation.has_same_memory;
  spec.timeout = parent.context()->config().timeout;
  if (formation.timeout) spec.timeout = *formation.timeout;
  std::vector<std::uint32_t> places;
  for (const auto& [rank, its_seat] : formation.members) {
    if (rank == parent.spec().own_world_rank()) spec.rank = spec.size();
    spec.world_ranks.push_back(rank);
    spec.slots.push_back(its_seat);
    if (const auto place = parent.spec().rank_of(rank)) places.push_back(*place);
  }
  auto group = parent.make_another(std::move(spec), parent.plans().model().of_ranks(places));
  Seats::keep(seat);
  return group;
}

}  // namespace xylem::runtime
