// SPDX-License-Identifier: Apache-2.0
//
// The rank that a time-out names, depending on the answers of the ranks.
#include "runtime/src/failure/participation.h"

#include <gtest/gtest.h>

namespace xylem::runtime {
namespace {

using State = Situation::State;

class ParticipationOf : public testing::Test {
 protected:
  void add(std::uint32_t rank, std::optional<State> state) {
    std::optional<RollCall::Answer> answer;
    if (state) answer = RollCall::Answer{.state = *state, .last = std::nullopt};
    participation.add(rank, answer, false, history_);
  }

  Participation participation;

 private:
  CallHistory history_{1};
};

TEST_F(ParticipationOf, BlamesTheOneRankThatIsSilentBeforeAllOthers) {
  add(1, State::not_called);
  add(2, State::left);
  EXPECT_EQ(participation.culprit(), 2U);
  add(3, std::nullopt);
  EXPECT_EQ(participation.culprit(), 3U);
  add(4, std::nullopt);
  EXPECT_EQ(participation.culprit(), std::nullopt);
}

TEST_F(ParticipationOf, BlamesTheOneRankThatDidNotCallIfNoneHasLeft) {
  add(0, State::waiting);
  add(1, State::not_called);
  EXPECT_EQ(participation.culprit(), 1U);
  add(2, State::not_called);
  EXPECT_EQ(participation.culprit(), std::nullopt);
}

TEST_F(ParticipationOf, IsDescribedByClauses) {
  EXPECT_EQ(participation.describe(), "");
  add(1, State::not_called);
  add(2, State::left);
  add(3, std::nullopt);
  add(4, std::nullopt);
  add(5, State::waiting);
  participation.left_job.push_back(6);
  EXPECT_EQ(participation.describe(),
            "; rank 1 did not call it; rank 1 has called nothing yet; ranks 3, 4 gave no answer; "
            "rank 6 left the job; rank 2 left the communicator; rank 5 waits too");
}

}  // namespace
}  // namespace xylem::runtime
