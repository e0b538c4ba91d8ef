// SPDX-License-Identifier: Apache-2.0
//
// The first difference between the calls of two ranks, and its description.
#include "runtime/src/failure/mismatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace xylem::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;

/// Two ranks of a group of four: rank 1 is this rank, and rank 3 the rank whose situation is
/// compared.
class Mismatch : public testing::Test {
 protected:
  static constexpr std::uint64_t kUid = 9;
  static constexpr std::uint32_t kOrigin = 3;

  Mismatch() {
    group.uid = kUid;
    group.rank = 1;
    group.world_ranks = group.slots = {0, 1, 2, 3};
  }

  static CallRecord all_reduce(std::uint64_t count) {
    CallRecord record;
    record.collective = collectives::Collective::all_reduce;
    record.type = DataType::float32;
    record.count = record.fingerprint = count;
    return record;
  }
  static void call(CallHistory& history, std::uint64_t count) {
    (void)history.add(all_reduce(count), 0);
  }
  /// The situation that the other rank publishes after its last call.
  Situation said() const {
    Situation situation;
    situation.group = kUid;
    situation.sequence = theirs.next_sequence() - 1;
    situation.records.push_back(theirs.record(situation.sequence));
    return situation;
  }
  auto found() const { return find_mismatch(mine, group, kOrigin, said()); }

  GroupSpec group;
  CallHistory mine{kUid}, theirs{kUid};
};

TEST_F(Mismatch, NamesBothCalls) {
  call(mine, 8);
  call(theirs, 8);
  EXPECT_EQ(found(), std::nullopt);
  call(mine, 100);
  call(theirs, 200);
  EXPECT_THAT(found(), Optional(AllOf(HasSubstr("rank 1 calls all_reduce of 100 float32"),
                                      HasSubstr("rank 3 calls all_reduce of 200 float32"))));
}

TEST_F(Mismatch, IsNotKnownBeforeThisRankHasMadeTheCall) {
  call(mine, 8);
  call(theirs, 8);
  call(theirs, 200);
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(Mismatch, IsFoundByHashesInCallsOfLongAgo) {
  call(mine, 100);
  call(theirs, 200);
  call(mine, 8);
  call(theirs, 8);
  EXPECT_EQ(found(), std::nullopt) << "the last calls are alike";
  for (std::size_t i = 0; i < CallHistory::kRecords; ++i) call(mine, 8);
  EXPECT_THAT(found(), Optional(HasSubstr("too far ahead to say what")));
}

TEST_F(Mismatch, IsFoundInSizesThatOnlyTwoRanksKnow) {
  call(mine, 8);
  call(theirs, 8);
  mine.remember_counts(0, {10, 0, 20, 30});
  Situation waiting = said();
  waiting.state = Situation::State::waiting;
  waiting.blocked_on = group.rank;
  waiting.blocked_bytes = 30 * sizeof(float);
  EXPECT_EQ(find_mismatch(mine, group, kOrigin, waiting), std::nullopt);
  waiting.blocked_bytes = 31 * sizeof(float);
  EXPECT_THAT(find_mismatch(mine, group, kOrigin, waiting),
              Optional(HasSubstr("rank 1 sends 120 bytes to rank 3, which expects 124")));
}

}  // namespace
}  // namespace xylem::runtime
