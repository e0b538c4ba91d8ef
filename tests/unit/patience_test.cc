// SPDX-License-Identifier: Apache-2.0
//
// How long a call polls for a message that should arrive soon.
#include "xylem/execution/patience.h"

#include <gtest/gtest.h>

namespace xylem::runtime {

using execution::Patience;
using execution::relax;
namespace {

/// The number of polls in one call for something that never comes.
int looks(Patience& patience) {
  int count = 0;
  EXPECT_FALSE(patience.await([&] {
    ++count;
    return false;
  }));
  return count;
}

TEST(Patience, TakesWhatIsThereAtOnce) {
  for (Patience patience : {Patience(), Patience::spinning(), Patience::yielding()}) {
    int count = 0;
    EXPECT_TRUE(patience.await([&] { return ++count == 1; }));
    EXPECT_EQ(count, 1);
  }
}

TEST(Patience, PollsForWhatIsAboutToCome) {
  int count = 0;
  EXPECT_TRUE(Patience::spinning().await([&] { return ++count == 3; }));
  // The first yield may use up the whole time, but one poll after it is certain.
  count = 0;
  EXPECT_TRUE(Patience::yielding().await([&] { return ++count == 2; }));
  Patience none;
  EXPECT_EQ(looks(none), 1);
}

TEST(Patience, IsLostAfterSomeMissesAndTriedEverMoreSeldom) {
  for (Patience patience : {Patience::spinning(), Patience::yielding()}) {
    int tries = 0, last = 0, longest = 0;
    for (int call = 0; call < 10'000; ++call) {
      if (looks(patience) == 1) continue;
      ++tries;
      longest = std::max(longest, call - last);
      last = call;
    }
    EXPECT_LT(tries, 40);
    EXPECT_GT(tries, 3);
    EXPECT_GE(longest, 1024);
    // If what a call waits for is there at once, the patience returns.
    EXPECT_TRUE(patience.await([] { return true; }));
    EXPECT_GT(looks(patience), 1);
  }
}

/// Other processes keep the core for longer than the time limit.
TEST(Patience, ThatYieldsEndsByTheClock) {
  Patience patience = Patience::yielding();
  const auto look_late = [] {
    const auto end = Clock::now() + std::chrono::microseconds(60);
    while (Clock::now() < end) relax();
    return false;
  };
  int count = 0;
  EXPECT_FALSE(patience.await([&] {
    ++count;
    return look_late();
  }));
  EXPECT_EQ(count, 2) << "polls once, and once more after the first yield";
}

}  // namespace
}  // namespace xylem::runtime
