// SPDX-License-Identifier: Apache-2.0
//
// Roll calls: the ranks that have answered a rank's question, and the time at which the others
// count as silent.
#include "runtime/src/failure/roll_calls.h"

#include <gtest/gtest.h>

#include <set>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart = Clock::time_point{} + milliseconds(1'000'000);

Situation about(std::uint64_t group, std::uint64_t sequence) {
  Situation situation;
  situation.group = group;
  situation.sequence = sequence;
  situation.state = Situation::State::waiting;
  return situation;
}

Situation answer_to(RollCallId roll, std::uint64_t group, std::uint64_t sequence) {
  Situation situation = about(group, sequence);
  situation.answers = roll;
  return situation;
}

std::set<std::uint32_t> who(const RollCall* roll) {
  std::set<std::uint32_t> ranks;
  for (const auto& [rank, answer] : roll->answers) ranks.insert(rank);
  return ranks;
}

TEST(RollCalls, CountWhatIsSaidToThem) {
  RollCalls rolls(3);
  const auto first = rolls.call(1, 10, kStart).id;
  const auto later = rolls.call(1, 10, kStart + milliseconds(400)).id;
  EXPECT_NE(first, later);
  rolls.on_answer(5, answer_to(first, 1, 10));
  // An answer to the roll call of another rank, which has not reached this one.
  rolls.on_answer(6, answer_to({.caller = 4, .number = first.number}, 1, 10));
  rolls.on_answer(7, answer_to(first, 2, 10));
  EXPECT_EQ(who(rolls.find(first)), std::set<std::uint32_t>{5});
  EXPECT_EQ(who(rolls.find(later)), std::set<std::uint32_t>{6});
  EXPECT_EQ(rolls.find(first)->answers.at(5).state, Situation::State::waiting);
}

TEST(RollCalls, OfOneMomentShareTheirAnswers) {
  RollCalls rolls(3);
  const auto mine = rolls.call(1, 10, kStart).id;
  const RollCallId theirs{.caller = 8, .number = 1};
  // This rank answers, since its own roll call may not have reached all ranks.
  EXPECT_TRUE(rolls.on_situation(theirs, about(1, 10), kStart + RollCalls::kShared));
  EXPECT_EQ(who(rolls.find(mine)), std::set<std::uint32_t>{8}) << "a rank that asks has answered";
  const RollCallId third{.caller = 9, .number = 1};
  EXPECT_FALSE(rolls.on_situation(third, about(1, 10), kStart + RollCalls::kShared)) << "once";
  rolls.on_answer(5, answer_to(theirs, 1, 10));
  EXPECT_EQ(who(rolls.find(mine)), (std::set<std::uint32_t>{5, 8, 9}));
  EXPECT_EQ(who(rolls.find(theirs)), (std::set<std::uint32_t>{5, 8, 9}));
}

// A rank answers the first roll call of several, and this rank starts another after that answer.
TEST(RollCalls, CountAnswersToAnEarlierOneOfTheSameMoment) {
  RollCalls rolls(3);
  rolls.on_situation({8, 1}, about(1, 10), kStart);
  rolls.on_answer(5, answer_to({8, 1}, 1, 10));
  const auto mine = rolls.call(1, 10, kStart + RollCalls::kSharedElsewhere).id;
  const auto later = rolls.call(1, 10, kStart + 2 * RollCalls::kSharedElsewhere + milliseconds(1));
  EXPECT_EQ(who(rolls.find(mine)), (std::set<std::uint32_t>{5, 8}));
  EXPECT_EQ(who(rolls.find(later.id)), std::set<std::uint32_t>{});
  EXPECT_EQ(who(rolls.find(rolls.call(1, 11, kStart).id)), std::set<std::uint32_t>{});
}

TEST(RollCalls, AreAnsweredOnceInAMoment) {
  RollCalls rolls(3);
  EXPECT_TRUE(rolls.on_situation({8, 1}, about(1, 10), kStart));
  EXPECT_FALSE(rolls.on_situation({9, 1}, about(1, 10), kStart + RollCalls::kShared));
  EXPECT_TRUE(rolls.on_situation({9, 2}, about(1, 11), kStart)) << "another call";
  EXPECT_TRUE(rolls.on_situation({8, 2}, about(1, 10), kStart + milliseconds(250)))
      << "another moment";
}

TEST(RollCalls, AreSharedForAMomentByThoseWhoAskTheSame) {
  RollCalls rolls(3);
  rolls.on_situation({8, 1}, about(1, 10), kStart);
  EXPECT_EQ(rolls.recent(2, 10, kStart), nullptr);
  EXPECT_EQ(rolls.recent(1, 11, kStart), nullptr);
  EXPECT_NE(rolls.recent(1, 10, kStart + RollCalls::kShared), nullptr);
  EXPECT_EQ(rolls.recent(1, 10, kStart + RollCalls::kShared + milliseconds(1)), nullptr);
}

TEST(RollCalls, GiveUpOneSilentRankSoonAndSeveralLater) {
  RollCalls rolls(0);
  const auto id = rolls.call(1, 10, kStart).id;
  const RollCall* roll = rolls.find(id);
  EXPECT_TRUE(roll->is_over(0));
  EXPECT_FALSE(roll->is_over(1));
  auto now = kStart;
  const auto run_for = [&](milliseconds time) {
    for (const auto end = now + time; now < end;) rolls.tick(now += milliseconds(50));
  };
  rolls.tick(now);
  run_for(RollCall::kAnswer);
  EXPECT_TRUE(roll->is_over(1));
  EXPECT_FALSE(roll->is_over(2));
  // Answers still arrive, so the missing answer may arrive, too.
  rolls.on_answer(4, answer_to(id, 1, 10));
  EXPECT_FALSE(roll->is_over(1));
  run_for(RollCall::kSlowAnswers);
  EXPECT_TRUE(roll->is_over(2));
}

TEST(RollCalls, DoNotCountTheTimeInWhichThisRankWasStopped) {
  RollCalls rolls(0);
  rolls.tick(kStart);
  const auto id = rolls.call(1, 10, kStart).id;
  rolls.tick(kStart + milliseconds(4000));
  EXPECT_FALSE(rolls.find(id)->is_over(1));
}

TEST(RollCalls, AreForgottenAndNeverFoundAgain) {
  RollCalls rolls(0);
  EXPECT_EQ(rolls.find(RollCallId{}), nullptr);
  const auto old = rolls.call(1, 10, kStart).id;
  const auto recent = rolls.call(1, 10, kStart + milliseconds(1)).id;
  rolls.on_situation({8, 1}, about(1, 11), kStart + RollCalls::kKept + milliseconds(1));
  EXPECT_EQ(rolls.find(old), nullptr);
  ASSERT_NE(rolls.find(recent), nullptr);
  rolls.on_answer(1, answer_to(old, 1, 10));
  EXPECT_EQ(who(rolls.find(recent)), std::set<std::uint32_t>{});
}

}  // namespace
}  // namespace xylem::runtime
