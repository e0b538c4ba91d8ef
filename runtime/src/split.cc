// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator: members tell each other color, key and the tag slots they use, agree on
// the lowest slot that is free at all of them, and claim it. Two splits of different communicators
// may race for a slot; who loses says so to all, and all try again.
#include "group.h"
#include "job.h"
#include "tag.h"
#include "xylem/base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace xylem::runtime {
namespace {

constexpr std::size_t kSlotWords = kMaxGroups / 64;
constexpr int kTries = 16;

/// What a member says of itself.
struct Member {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::array<std::uint64_t, kSlotWords> taken{};
};

/// Every member's T, by rank, through the group's own all_gather.
template <typename T>
Result<std::vector<T>> gather_from_all(Group& group, const T& mine) {
  std::vector<T> all(group.size());
  Call call;
  call.collective = collectives::Collective::all_gather;
  call.type = DataType::uint8;
  call.count = sizeof(T);
  call.input = &mine;
  call.output = all.data();
  XYLEM_TRY(group.submit(std::move(call)).wait());
  return all;
}

/// A slot claimed for as long as the group to which it belongs is not made.
class SlotClaim {
 public:
  SlotClaim(Job& job, std::optional<std::uint32_t> slot)
      : job_(job), slot_(slot.value_or(0)), held_(slot && job.claim_slot(slot_)) {}
  SlotClaim(const SlotClaim&) = delete;
  SlotClaim& operator=(const SlotClaim&) = delete;
  ~SlotClaim() {
    if (held_) job_.free_slot(slot_);
  }
  bool held() const noexcept { return held_; }
  void keep() noexcept { held_ = false; }

 private:
  Job& job_;
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

}  // namespace

Result<Communicator> Group::split(std::int32_t color, std::int32_t key) {
  if (Status alive = job_->check_process(); !alive) return alive;
  const std::uint64_t number = splits_++;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Member mine{color, key, {}};
    const auto taken = job_->slots_taken();
    std::copy(taken.begin(), taken.end(), mine.taken.begin());
    XYLEM_TRY(const auto members, gather_from_all(*this, mine));
    std::vector<std::uint32_t> ranks;
    std::array<std::uint64_t, kSlotWords> used{};
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      if (color < 0 || members[rank].color != color) continue;
      ranks.push_back(rank);
      for (std::size_t word = 0; word < kSlotWords; ++word) used[word] |= members[rank].taken[word];
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::uint32_t a, std::uint32_t b) {
      return members[a].key < members[b].key;
    });
    const auto slot = lowest_free(used);
    // 0: nothing wanted or claimed; 1: lost a race for the slot; 2: no slot is left.
    std::uint8_t outcome = 0;
    SlotClaim claim(*job_, color >= 0 ? slot : std::nullopt);
    if (color >= 0) outcome = !slot ? 2 : claim.held() ? 0 : 1;
    XYLEM_TRY(const auto outcomes, gather_from_all(*this, outcome));
    const auto worst = *std::max_element(outcomes.begin(), outcomes.end());
    if (worst == 0) {
      if (color < 0) return Communicator();
      GroupSpec spec;
      spec.uid = combine(combine(uid(), number), static_cast<std::uint64_t>(color));
      spec.slot = *slot;
      collectives::CostModel model = this->model();
      model.host.clear();
      for (std::uint32_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] == rank()) spec.rank = i;
        spec.world_ranks.push_back(world_rank(ranks[i]));
        if (!this->model().host.empty()) model.host.push_back(this->model().host[ranks[i]]);
      }
      claim.keep();
      return Communicator(make(job_, std::move(spec), std::move(model)));
    }
    if (worst == 2) break;
  }
  return failure(Code::exhausted, fmt::format("no communicator can be made: a rank has {} already, "
                                              "or races for them never end; destroy "
                                              "those that are not in use",
                                              kMaxGroups));
}

}  // namespace xylem::runtime
