// SPDX-License-Identifier: Apache-2.0
//
// Roll calls: which ranks have answered since a rank asked.
#include "runtime/src/roll_calls.h"

#include <gtest/gtest.h>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart = Clock::time_point{} + milliseconds(1'000'000);

TEST(RollCalls, CountOnlyAnswersToThemselves) {
  RollCalls rolls(3);
  const auto first = rolls.call(1, 10, kStart).id;
  const auto second = rolls.call(1, 10, kStart).id;
  EXPECT_NE(first, second);
  rolls.on_answer(first, 5);
  rolls.on_answer({.caller = 4, .number = second.number}, 6);  // Another rank's.
  EXPECT_EQ(rolls.find(first)->answered, (std::set<std::uint32_t>{3, 5}));
  EXPECT_EQ(rolls.find(second)->answered, (std::set<std::uint32_t>{3}));
}

TEST(RollCalls, AreSharedForAMomentByThoseWhoAskTheSame) {
  RollCalls rolls(3);
  rolls.hear({.caller = 8, .number = 1}, 1, 10, kStart);
  EXPECT_EQ(rolls.recent(2, 10, kStart), nullptr);
  EXPECT_EQ(rolls.recent(1, 11, kStart), nullptr);
  const RollCall* shared = rolls.recent(1, 10, kStart + RollCalls::kShared);
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(shared->answered, std::set<std::uint32_t>{8});  // It asks, so it is there.
  EXPECT_EQ(rolls.recent(1, 10, kStart + RollCalls::kShared + milliseconds(1)), nullptr);
}

TEST(RollCalls, AreForgottenAndNeverFoundAgain) {
  RollCalls rolls(0);
  EXPECT_EQ(rolls.find(RollCall::Id{}), nullptr);
  const auto old = rolls.call(1, 10, kStart).id;
  const auto recent = rolls.call(1, 10, kStart + milliseconds(1)).id;
  rolls.forget_old(kStart + RollCalls::kKept + milliseconds(1));
  EXPECT_EQ(rolls.find(old), nullptr);
  ASSERT_NE(rolls.find(recent), nullptr);
  rolls.on_answer(old, 1);
  EXPECT_EQ(rolls.find(recent)->answered, std::set<std::uint32_t>{0});
}

}  // namespace
}  // namespace xylem::runtime
