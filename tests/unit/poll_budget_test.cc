// SPDX-License-Identifier: Apache-2.0
//
// How long a call polls for a message that should arrive soon.
#include "xylem/execution/poll_budget.h"

#include <gtest/gtest.h>

namespace xylem::runtime {

using execution::PollBudget;
using execution::relax;
namespace {

/// Returns the number of polls in one call that waits for an event that never happens.
int looks(PollBudget& budget) {
  int count = 0;
  EXPECT_FALSE(budget.await([&] {
    ++count;
    return false;
  }));
  return count;
}

TEST(PollBudget, TakesWhatIsThereAtOnce) {
  for (PollBudget budget : {PollBudget(), PollBudget::spinning(), PollBudget::yielding()}) {
    int count = 0;
    EXPECT_TRUE(budget.await([&] { return ++count == 1; }));
    EXPECT_EQ(count, 1);
  }
}

TEST(PollBudget, PollsForWhatIsAboutToCome) {
  int count = 0;
  EXPECT_TRUE(PollBudget::spinning().await([&] { return ++count == 3; }));
  // The first yield may use the whole time limit. One more poll follows in any case.
  count = 0;
  EXPECT_TRUE(PollBudget::yielding().await([&] { return ++count == 2; }));
  PollBudget none;
  EXPECT_EQ(looks(none), 1);
}

TEST(PollBudget, IsLostAfterSomeMissesAndTriedEverMoreSeldom) {
  for (PollBudget budget : {PollBudget::spinning(), PollBudget::yielding()}) {
    int tries = 0, last = 0, longest = 0;
    for (int call = 0; call < 10'000; ++call) {
      if (looks(budget) == 1) continue;
      ++tries;
      longest = std::max(longest, call - last);
      last = call;
    }
    EXPECT_LT(tries, 40);
    EXPECT_GT(tries, 3);
    EXPECT_GE(longest, 1024);
    // If the condition is true at once, await() returns true.
    EXPECT_TRUE(budget.await([] { return true; }));
    EXPECT_GT(looks(budget), 1);
  }
}

/// Other processes use the core for longer than the time limit.
TEST(PollBudget, ThatYieldsEndsByTheClock) {
  PollBudget budget = PollBudget::yielding();
  const auto look_late = [] {
    const auto end = Clock::now() + std::chrono::microseconds(60);
    while (Clock::now() < end) relax();
    return false;
  };
  int count = 0;
  EXPECT_FALSE(budget.await([&] {
    ++count;
    return look_late();
  }));
  EXPECT_EQ(count, 2) << "polls once, and once more after the first yield";
}

}  // namespace
}  // namespace xylem::runtime
