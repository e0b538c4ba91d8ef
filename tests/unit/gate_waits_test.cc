// SPDX-License-Identifier: Apache-2.0
//
// GateWaits: the share of messages that wait for the streams of their receives.
#include "calls/gate_waits.h"

#include <gtest/gtest.h>

#include <vector>

namespace xylem::runtime {
namespace {

/// Returns the numbers of the messages that wait, out of `messages`, if all gates open late.
std::vector<int> waiting(GateWaits& waits, int messages) {
  std::vector<int> numbers;
  for (int number = 0; number < messages; ++number) {
    if (waits.may_wait()) numbers.push_back(number);
    waits.note_failed_wait();
  }
  return numbers;
}

TEST(GateWaits, BecomeMoreSeldomUntilOneIn32) {
  GateWaits waits;
  EXPECT_EQ(waiting(waits, 130), (std::vector<int>{0, 2, 6, 14, 30, 62, 94, 126}));
}

TEST(GateWaits, BeginAgainAfterAGateThatOpensInTime) {
  GateWaits waits;
  waiting(waits, 40);
  waits.note_in_time();
  EXPECT_EQ(waiting(waits, 7), (std::vector<int>{0, 2, 6}));
}

TEST(GateWaits, GoOnAsLongAsGatesOpenInTime) {
  GateWaits waits;
  for (int message = 0; message < 40; ++message) {
    EXPECT_TRUE(waits.may_wait());
    waits.note_in_time();
  }
}

}  // namespace
}  // namespace xylem::runtime
