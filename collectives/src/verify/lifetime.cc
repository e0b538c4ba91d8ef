// SPDX-License-Identifier: Apache-2.0
//
// Checks what depends on the first and the last step of each rank. A barrier promises that each
// rank ends after all ranks have begun. Other ranks may use a rank's mapped memory only between the
// first and the last step of the rank, since the memory belongs to the user before and after the
// call.
#include "verify/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::collectives::verifier {
namespace {

// Stores a set of ranks for each step. At first, the set contains only the rank of the step.
class RankSets {
 public:
  explicit RankSets(const World& world)
      : words_((world.ranks.size() + 63) / 64), bits_(world.owner.size() * words_, 0) {
    for (Global id = 0; id < world.owner.size(); ++id) add(id, world.owner[id]);
  }

  bool has(Global id, std::uint32_t rank) const {
    return (bits_[id * words_ + rank / 64] >> (rank % 64) & 1) != 0;
  }
  void add(Global id, std::uint32_t rank) {
    bits_[id * words_ + rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
  void add_all(Global id, Global other) {
    for (std::size_t i = 0; i < words_; ++i) bits_[id * words_ + i] |= bits_[other * words_ + i];
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

// For each step, the ranks that are sure to have begun before the step ends.
RankSets begun_before(const World& world, std::span<const Global> order) {
  RankSets sets(world);
  for (const Global id : order) {
    world.for_each_before(id, [&](Global before) { sets.add_all(id, before); });
  }
  return sets;
}

// For each step, the ranks that are sure to end only after the step has begun.
RankSets ended_after(const World& world, std::span<const Global> order) {
  RankSets sets(world);
  for (std::size_t i = order.size(); i-- > 0;) {
    world.for_each_before(order[i], [&](Global before) { sets.add_all(before, order[i]); });
  }
  return sets;
}

}  // namespace

Status check_barrier(const World& world) {
  const RankSets begun = begun_before(world, topological_order(world));
  for (std::uint32_t rank = 0; rank < world.ranks.size(); ++rank) {
    for (std::uint32_t other = 0; other < world.ranks.size(); ++other) {
      bool heard = other == rank;
      for (Global id = world.first[rank]; id < world.first[rank + 1] && !heard; ++id) {
        heard = begun.has(id, other);
      }
      if (heard) continue;
      return failure(
          Code::bad_schedule,
          fmt::format("contributions: rank {} can leave the barrier before rank {} has entered it",
                      rank, other));
    }
  }
  return {};
}

Status check_lifetime(const World& world, std::span<const Global> order) {
  const auto has_foreign = [](const Schedule& schedule) {
    return std::ranges::any_of(
        schedule.operands, [&](const Operand& operand) { return operand.rank != schedule.rank; });
  };
  if (std::ranges::none_of(world.ranks, has_foreign)) return {};
  const RankSets begun = begun_before(world, order);
  const RankSets ended = ended_after(world, order);
  for (Global id = 0; id < world.owner.size(); ++id) {
    const Schedule& schedule = world.schedule(id);
    const Step& step = world.step(id);
    const auto check = [&](const Operand& operand) {
      const char* when = !begun.has(id, operand.rank)   ? "before that rank has begun"
                         : !ended.has(id, operand.rank) ? "after that rank has ended"
                                                        : nullptr;
      if (when == nullptr) return Status();
      return failure(Code::bad_schedule, fmt::format("order: {} may touch memory of rank {} {}",
                                                     world.describe(id), operand.rank, when));
    };
    for (const Operand& source : schedule.sources(step)) XYLEM_TRY(check(source));
    if (step.target != kNone) XYLEM_TRY(check(schedule.operands[step.target]));
  }
  return {};
}

}  // namespace xylem::collectives::verifier
