// SPDX-License-Identifier: Apache-2.0
//
// The time at which a rank that holds wakes wakes its sleeping peers.
#include "runtime/src/progress/held_wakes.h"

#include "support/host_peers.h"

#include <gtest/gtest.h>

#include <vector>

namespace xylem::runtime {
namespace {

/// Records the calls of hold_wakes().
class Peers final : public test::NoHostPeers {
 public:
  void hold_wakes(bool held) noexcept override { holds.push_back(held); }

  std::vector<bool> holds;
};

class HeldWakesTest : public testing::Test {
 protected:
  HeldWakesTest() { wakes.open(peers); }

  /// Makes a turn. Returns true if peers were woken after it.
  bool wakes_after_turn(unsigned done) {
    peers.holds.clear();
    wakes.begin_turn();
    wakes.end_turn(done);
    return !peers.holds.empty() && !peers.holds.back();
  }

  Peers peers;
  HeldWakes wakes;
};

TEST_F(HeldWakesTest, AreHeldOnlyWhileTheRankIsPatient) {
  wakes_after_turn(1);
  EXPECT_TRUE(peers.holds.empty());
  wakes.set_patient(true);
  EXPECT_FALSE(wakes_after_turn(1));
  EXPECT_EQ(peers.holds, std::vector<bool>{true});
  wakes.set_patient(false);
  EXPECT_FALSE(peers.holds.back());
}

TEST_F(HeldWakesTest, EndAfterATurnWithoutWorkOrAfterManyTurns) {
  wakes.set_patient(true);
  EXPECT_TRUE(wakes_after_turn(0));
  int turns = 1;
  while (!wakes_after_turn(1) && turns < 100) ++turns;
  EXPECT_EQ(turns, 16);
  EXPECT_FALSE(wakes_after_turn(1)) << "and are counted anew";
}

}  // namespace
}  // namespace xylem::runtime
