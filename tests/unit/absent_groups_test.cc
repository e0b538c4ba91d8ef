// SPDX-License-Identifier: Apache-2.0
//
// AbsentGroups stores messages about groups that this rank has not made yet, until it makes the
// group. It stores nothing about groups that have ended on this rank.
#include "runtime/src/failure/absent_groups.h"

#include <gtest/gtest.h>

namespace xylem::runtime {
namespace {

Verdict verdict(std::uint64_t group, std::uint32_t culprit) {
  Verdict verdict;
  verdict.group = group;
  verdict.culprit = culprit;
  return verdict;
}

TEST(AbsentGroups, KeepWhatWasSaidUntilTheGroupIsMade) {
  AbsentGroups groups;
  groups.keep(AbsentGroups::Roll{.id = {.caller = 2, .number = 1}, .group = 7, .sequence = 40});
  groups.keep(AbsentGroups::Goodbye{.group = 7, .rank = 3});
  groups.keep(AbsentGroups::Goodbye{.group = 8, .rank = 4});
  groups.keep(verdict(7, 5));
  groups.keep(verdict(7, 6));

  const AbsentGroups::Kept kept = groups.take(7);
  ASSERT_EQ(kept.rolls.size(), 1U);
  EXPECT_EQ(kept.rolls[0].sequence, 40U);
  ASSERT_EQ(kept.goodbyes.size(), 1U);
  EXPECT_EQ(kept.goodbyes[0].rank, 3U);
  ASSERT_TRUE(kept.verdict);
  EXPECT_EQ(kept.verdict->culprit, 5U) << "the first verdict counts";

  const AbsentGroups::Kept again = groups.take(7);
  EXPECT_TRUE(again.rolls.empty() && again.goodbyes.empty() && !again.verdict);
  EXPECT_EQ(groups.take(8).goodbyes.size(), 1U);
}

TEST(AbsentGroups, ForgetTheOldestMessages) {
  AbsentGroups groups;
  for (std::uint64_t group = 0; group <= AbsentGroups::kMostKept; ++group) {
    groups.keep(verdict(group, 1));
  }
  EXPECT_FALSE(groups.take(0).verdict);
  EXPECT_TRUE(groups.take(1).verdict);
}

TEST(AbsentGroups, KeepNothingOfGroupsThatExisted) {
  AbsentGroups groups;
  EXPECT_FALSE(groups.has_ended(7));
  groups.note_end(7);
  EXPECT_TRUE(groups.has_ended(7));
  groups.keep(AbsentGroups::Roll{.id = {}, .group = 7, .sequence = 1});
  groups.keep(AbsentGroups::Goodbye{.group = 7, .rank = 3});
  groups.keep(verdict(7, 5));
  const AbsentGroups::Kept kept = groups.take(7);
  EXPECT_TRUE(kept.rolls.empty() && kept.goodbyes.empty() && !kept.verdict);
}

}  // namespace
}  // namespace xylem::runtime
