// SPDX-License-Identifier: Apache-2.0
#include "failure/roll_calls.h"

#include <algorithm>

namespace xylem::runtime {
namespace {

bool is_on(const RollCall& roll, std::uint64_t group, std::uint64_t sequence) {
  return roll.group == group && roll.sequence == sequence;
}

}  // namespace

bool RollCall::is_over(std::size_t missing) const noexcept {
  if (missing == 0 || waited >= kSlowAnswers) return true;
  return missing == 1 && quiet >= kAnswer;
}

RollCall::Answer RollCall::answer_of(const Situation& situation) {
  Answer answer{.state = situation.state, .last = std::nullopt};
  if (!situation.records.empty()) answer.last = situation.records.back();
  return answer;
}

const RollCall* RollCalls::recent(std::uint64_t group,
                                  std::uint64_t sequence,
                                  Clock::time_point now) const {
  const auto found = std::ranges::find_if(known_, [&](const RollCall& roll) {
    return is_on(roll, group, sequence) && now - roll.since <= kShared;
  });
  return found == known_.end() ? nullptr : &*found;
}

RollCall& RollCalls::add(RollCallId id,
                         std::uint64_t group,
                         std::uint64_t sequence,
                         Clock::time_point now) {
  forget_old(now);
  RollCall roll{.id = id, .group = group, .sequence = sequence, .since = now};
  // Other ranks may count this roll call and an earlier one as one, and do not answer it.
  for (const RollCall& earlier : known_) {
    if (!is_on(earlier, group, sequence) || now - earlier.since > kSharedElsewhere) continue;
    for (const auto& [rank, answer] : earlier.answers) roll.answers.insert_or_assign(rank, answer);
  }
  known_.push_back(std::move(roll));
  return known_.back();
}

const RollCall& RollCalls::call(std::uint64_t group,
                                std::uint64_t sequence,
                                Clock::time_point now) {
  return add({.caller = rank_, .number = ++number_}, group, sequence, now);
}

bool RollCalls::on_situation(RollCallId id, const Situation& situation, Clock::time_point now) {
  const bool was_answered = std::ranges::any_of(known_, [&](const RollCall& roll) {
    return roll.is_answered_here && is_on(roll, situation.group, situation.sequence) &&
           now - roll.since <= kShared;
  });
  RollCall& roll = add(id, situation.group, situation.sequence, now);
  roll.is_answered_here = !was_answered;
  note(roll, id.caller, situation);
  return !was_answered;
}

void RollCalls::on_answer(std::uint32_t rank, const Situation& situation) {
  const RollCall* roll = find(situation.answers);
  if (roll == nullptr && situation.answers.caller == rank_) return;  // It has been removed.
  // A roll call that has not reached this rank was not passed on, since another about the same call
  // was, at the same time.
  for (auto other = known_.rbegin(); roll == nullptr && other != known_.rend(); ++other) {
    if (is_on(*other, situation.group, situation.sequence)) roll = &*other;
  }
  if (roll != nullptr && is_on(*roll, situation.group, situation.sequence))
    note(*roll, rank, situation);
}

/// Counts an answer for all roll calls about the same call that started at about the same time.
void RollCalls::note(const RollCall& roll, std::uint32_t rank, const Situation& situation) {
  for (RollCall& other : known_) {
    const auto apart =
        other.since > roll.since ? other.since - roll.since : roll.since - other.since;
    if (!is_on(other, roll.group, roll.sequence) || apart > kSharedElsewhere) continue;
    other.answers.insert_or_assign(rank, RollCall::answer_of(situation));
    other.quiet = Clock::duration(0);
  }
}

const RollCall* RollCalls::find(RollCallId id) const {
  const auto found = std::ranges::find(known_, id, &RollCall::id);
  return found == known_.end() ? nullptr : &*found;
}

void RollCalls::tick(Clock::time_point now) {
  const auto passed = std::min<Clock::duration>(now - last_tick_, kMostOfATick);
  last_tick_ = now;
  forget_old(now);
  for (RollCall& roll : known_) {
    roll.waited += passed;
    roll.quiet += passed;
  }
}

void RollCalls::forget_old(Clock::time_point now) {
  while (!known_.empty() && now - known_.front().since > kKept) known_.pop_front();
}

}  // namespace xylem::runtime
