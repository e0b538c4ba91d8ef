// SPDX-License-Identifier: Apache-2.0
#include "runtime/src/failure/failure_detector.h"

#include "support/held_token.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::SizeIs;
using Leaver = Suspicion::Leaver;

class FailureDetectorOfThree : public testing::Test {
 protected:
  void suspect(std::uint32_t rank, Leaver leaver) {
    detector.suspect(token, {}, failure(Code::link_lost, "the wire broke", rank), leaver);
  }
  std::vector<Suspicion> confirmed() {
    return detector.take_confirmed(token, Clock::now() + milliseconds(600));
  }

  HeldToken token;
  FailureDetector detector{3};
};

TEST_F(FailureDetectorOfThree, BelievesASuspicionAfterAWhile) {
  suspect(2, Leaver::counts);
  EXPECT_TRUE(detector.has_suspicions());
  EXPECT_THAT(detector.take_confirmed(token, Clock::now()), SizeIs(0));
  const auto believed = confirmed();
  ASSERT_THAT(believed, SizeIs(1));
  EXPECT_THAT(believed[0].why, AllOf(fails_as(Code::link_lost), blames(2U)));
  EXPECT_EQ(std::string(believed[0].why.message()), "the wire broke");
  EXPECT_FALSE(detector.has_suspicions());
}

// The error of the wire is only a consequence. The reported cause must be that the rank has left.
TEST_F(FailureDetectorOfThree, ARankThatLeftIsNamedAsTheOneThatLeft) {
  suspect(1, Leaver::counts);
  suspect(2, Leaver::counts);
  detector.note_left(token, 1);
  const auto believed = confirmed();
  ASSERT_THAT(believed, SizeIs(2));
  EXPECT_THAT(believed[0].why,
              AllOf(fails_as(Code::peer_lost, "rank 1 left the job before it took its part",
                             "the wire broke"),
                    blames(1U)));
  EXPECT_EQ(std::string(believed[1].why.message()), "the wire broke");
}

TEST_F(FailureDetectorOfThree, AGoodbyeMayExcuse) {
  suspect(0, Leaver::is_excused);
  suspect(1, Leaver::is_excused);
  detector.note_left(token, 1);
  const auto believed = confirmed();
  ASSERT_THAT(believed, SizeIs(1));
  EXPECT_EQ(believed[0].why.peer(), 0U);
}

// Whoever closes a connection has died or leaves. The report of it may take long.
TEST_F(FailureDetectorOfThree, AClosedWireIsNoReasonForHaste) {
  detector.suspect(token, {}, failure(Code::peer_lost, "closed", 1), Leaver::is_excused);
  EXPECT_THAT(confirmed(), SizeIs(0));
  EXPECT_THAT(detector.take_confirmed(token, Clock::now() + milliseconds(3100)), SizeIs(1));
}

}  // namespace
}  // namespace xylem::runtime
