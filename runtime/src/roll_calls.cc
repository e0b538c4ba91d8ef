// SPDX-License-Identifier: Apache-2.0
#include "roll_calls.h"

#include <algorithm>

namespace xylem::runtime {

const RollCall* RollCalls::recent(std::uint64_t group,
                                  std::uint64_t sequence,
                                  Clock::time_point now) const {
  const auto found = std::ranges::find_if(known_, [&](const RollCall& roll) {
    return roll.group == group && roll.sequence == sequence && now - roll.since <= kShared;
  });
  return found == known_.end() ? nullptr : &*found;
}

const RollCall& RollCalls::call(std::uint64_t group,
                                std::uint64_t sequence,
                                Clock::time_point now) {
  hear({.caller = rank_, .number = ++number_}, group, sequence, now);
  return known_.back();
}

void RollCalls::hear(RollCall::Id id,
                     std::uint64_t group,
                     std::uint64_t sequence,
                     Clock::time_point now) {
  known_.push_back(
      {.id = id, .group = group, .sequence = sequence, .since = now, .answered = {id.caller}});
}

void RollCalls::on_answer(RollCall::Id id, std::uint32_t rank) {
  const auto found = std::ranges::find(known_, id, &RollCall::id);
  if (found != known_.end()) found->answered.insert(rank);
}

const RollCall* RollCalls::find(RollCall::Id id) const {
  const auto found = std::ranges::find(known_, id, &RollCall::id);
  return found == known_.end() ? nullptr : &*found;
}

void RollCalls::forget_old(Clock::time_point now) {
  while (!known_.empty() && now - known_.front().since > kKept) known_.pop_front();
}

}  // namespace xylem::runtime
