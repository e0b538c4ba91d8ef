// SPDX-License-Identifier: Apache-2.0
//
// The order statistics in a row of the table.
#include "tools/src/bench/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace xylem::tools {
namespace {

TEST(Summarize, TakesTheMiddleOfAnOddNumberInAnyOrder) {
  const auto result = summarize({9, 1, 5});
  EXPECT_DOUBLE_EQ(result.min, 1);
  EXPECT_DOUBLE_EQ(result.p50, 5);
  EXPECT_DOUBLE_EQ(result.p99, 9);
}

TEST(Summarize, TakesTheMeanOfTheMiddleTwoOfAnEvenNumber) {
  EXPECT_DOUBLE_EQ(summarize({4, 1, 2, 100}).p50, 3);
}

TEST(Summarize, LeavesOneInAHundredAboveP99) {
  std::vector<double> samples(200);
  std::iota(samples.begin(), samples.end(), 1);
  EXPECT_DOUBLE_EQ(summarize(samples).p99, 198);
}

TEST(Summarize, OfOneSampleIsThatSample) {
  const auto result = summarize({7});
  EXPECT_DOUBLE_EQ(result.min, 7);
  EXPECT_DOUBLE_EQ(result.p50, 7);
  EXPECT_DOUBLE_EQ(result.p99, 7);
}

TEST(Summarize, OfNothingIsZero) { EXPECT_DOUBLE_EQ(summarize({}).p50, 0); }

}  // namespace
}  // namespace xylem::tools
