// SPDX-License-Identifier: Apache-2.0
//
// SpinLearner, with a fixed duration for each way of waiting. Also the beginning of an idle period.
#include "progress/waiting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace xylem::runtime {
namespace {

using std::chrono::nanoseconds;

/// The duration of an idle period when the rank spins, and when it yields.
struct World {
  nanoseconds spinning, yielding;
};

/// Returns the number of idle periods, out of `periods`, in which the learner spins.
int spins_in(SpinLearner& learner, World world, int periods) {
  int spun = 0;
  for (int i = 0; i < periods; ++i) {
    const auto [spins, is_timed] = learner.next();
    if (is_timed) learner.note(spins, spins ? world.spinning : world.yielding);
    spun += spins ? 1 : 0;
  }
  return spun;
}

constexpr World kOwnCore{nanoseconds(1500), nanoseconds(2000)};
constexpr World kSharedCore{nanoseconds(200'000), nanoseconds(20'000)};
/// Other programs compute on the core. A rank that yields gets the core back after milliseconds.
constexpr World kBusyCore{nanoseconds(5'000), nanoseconds(3'000'000)};

TEST(SpinLearner, SpinsFromTheStart) {
  SpinLearner learner;
  EXPECT_TRUE(learner.next().spins);
}

TEST(SpinLearner, SpinsWhereThatIsBetterOrAsGood) {
  for (const World world : {kOwnCore, World{nanoseconds(500), nanoseconds(500)}}) {
    SpinLearner learner;
    spins_in(learner, world, 2'000);
    EXPECT_GT(spins_in(learner, world, 10'000), 9'700);
  }
}

TEST(SpinLearner, YieldsWhereThatIsBetter) {
  SpinLearner learner;
  spins_in(learner, kSharedCore, 2'000);
  EXPECT_LT(spins_in(learner, kSharedCore, 10'000), 100);
}

TEST(SpinLearner, TriesTheOtherWaySoSeldomThatItCostsLittle) {
  for (const World world : {kSharedCore, kBusyCore}) {
    SpinLearner learner;
    spins_in(learner, world, 200'000);
    constexpr int kPeriods = 1'000'000;
    const int spun = spins_in(learner, world, kPeriods);
    const auto best = std::min(world.spinning, world.yielding);
    const auto total = spun * world.spinning + (kPeriods - spun) * world.yielding;
    EXPECT_LT(total, kPeriods * best * 11 / 10);
  }
}

TEST(SpinLearner, LearnsAnewWhenTheWorldChanges) {
  SpinLearner learner;
  spins_in(learner, kOwnCore, 10'000);
  spins_in(learner, kSharedCore, 3'000);
  EXPECT_LT(spins_in(learner, kSharedCore, 10'000), 200);
  spins_in(learner, kOwnCore, 20'000);
  EXPECT_GT(spins_in(learner, kOwnCore, 10'000), 9'700);
}

TEST(Idleness, BeginsByYieldingIfMoreThreadsWaitThanMaySpin) {
  const WaitPolicy policy = WaitPolicy::make(WaitMode::automatic, 4, 2, true);
  EXPECT_FALSE(policy.is_crowded(2));
  EXPECT_TRUE(policy.is_crowded(3));
  bool looked = false;
  EXPECT_EQ(Idleness(policy).step(policy.is_crowded(2), looked), Idleness::Next::spin);
  EXPECT_EQ(Idleness(policy).step(policy.is_crowded(3), looked), Idleness::Next::yield);
  for (const WaitMode fixed : {WaitMode::spin, WaitMode::yield, WaitMode::sleep}) {
    EXPECT_FALSE(WaitPolicy::make(fixed, 4, 2, true).is_crowded(100));
  }
}

}  // namespace
}  // namespace xylem::runtime
