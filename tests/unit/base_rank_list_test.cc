// SPDX-License-Identifier: Apache-2.0
//
// Lists of ranks as text.
#include "xylem/base/rank_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace xylem {
namespace {

using Ranks = std::vector<std::uint32_t>;

TEST(RankList, HasRangesAndIsShort) {
  EXPECT_EQ(rank_list(Ranks{}), "");
  EXPECT_EQ(rank_list(Ranks{3}), "3");
  EXPECT_EQ(rank_list(Ranks{0, 1, 2, 3, 5, 6}), "0-3, 5, 6");
  Ranks even(1000);
  for (std::uint32_t i = 0; i < even.size(); ++i) even[i] = 2 * i;
  EXPECT_THAT(rank_list(even), testing::EndsWith("and 984 more"));
}

}  // namespace
}  // namespace xylem
