// SPDX-License-Identifier: Apache-2.0
//
// Jobs on two hosts whose network has a long delay, loses packets, or stops. docs/starting.md
// states what such jobs do.
#include "process/bad_wire.h"
#include "process/hosts.h"
#include "support/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

/// Makes calls and checks them until a file exists.
const std::string kRank = std::string(XYLEM_TEST_BIN) + "/hostile_rank";
/// Rank 0 is on host 0. Ranks 1 and 2 are on host 1 and share memory.
constexpr std::size_t kRanks = 3;

class BadNetwork : public testing::Test {
 protected:
  void SetUp() override {
    hosts = std::make_unique<Hosts>();
    if (!hosts->ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  }

  /// Starts the ranks over a network with these faults.
  void start(const BadWire::Faults& faults, const Command::Variables& settings = {}) {
    wire = std::make_unique<BadWire>(*hosts, faults);
    if (!wire->ok()) GTEST_SKIP() << "this machine makes no TUN devices";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      Command::Variables variables = {
          {"XYLEM_RANK", std::to_string(rank)},
          {"XYLEM_SIZE", std::to_string(kRanks)},
          {"XYLEM_RENDEZVOUS", "tcp://" + BadWire::address(0) + ":29400"},
          {"XYLEM_SECRET", "only-the-ranks-know-this"},
          {"XYLEM_LOG", "info"}};
      variables.insert(variables.end(), settings.begin(), settings.end());
      ranks.push_back(hosts->run(rank == 0 ? 0 : 1, {kRank, end_file()}, variables));
    }
  }
  void expect_start_within(seconds limit) {
    const Deadline deadline = Deadline::after(limit);
    for (const auto& rank : ranks) {
      EXPECT_TRUE(rank->wait_for_output("first\n", deadline)) << rank->said();
    }
  }
  /// Ends the job, and expects that all ranks got correct sums.
  void expect_good_end() {
    std::ofstream(end_file()) << "now";
    for (const auto& rank : ranks) {
      finished.push_back(rank->wait(Deadline::after(seconds(20))));
      EXPECT_EQ(finished.back().exit_status, 0) << finished.back().out << finished.back().err;
      EXPECT_THAT(finished.back().err, Not(HasSubstr("lost")));
    }
  }
  std::string end_file() const { return directory.path() + "/end"; }

  const TemporaryDirectory directory;
  std::unique_ptr<Hosts> hosts;
  std::unique_ptr<BadWire> wire;
  std::vector<std::unique_ptr<Command>> ranks;
  std::vector<Finished> finished;
};

TEST_F(BadNetwork, AStartOverALongLinkIsQuickAndSaysWhatIsEstimated) {
  start({.delay = milliseconds(200)});
  if (IsSkipped()) return;
  expect_start_within(seconds(10));
  expect_good_end();
  EXPECT_THAT(finished[0].err, HasSubstr("between hosts"));
  EXPECT_THAT(finished[0].err, HasSubstr("assumed, since messages take too long to measure it"));
}

TEST_F(BadNetwork, AStartOverALinkThatLosesPacketsIsQuick) {
  start({.delay = milliseconds(10), .jitter = milliseconds(20), .loss = 0.05});
  if (IsSkipped()) return;
  expect_start_within(seconds(10));
  expect_good_end();
}

TEST_F(BadNetwork, AStartThatTheNetworkMakesTooLongBlamesNobody) {
  start({.delay = milliseconds(200)}, {{"XYLEM_START_TIMEOUT", "2s"}});
  if (IsSkipped()) return;
  for (const auto& rank : ranks) {
    const Finished end = rank->wait(Deadline::after(seconds(10)));
    EXPECT_EQ(end.exit_status, 1) << end.out;
    EXPECT_THAT(end.out, HasSubstr("timed_out")) << end.err;
    EXPECT_THAT(end.out, Not(HasSubstr("stopped")));
    EXPECT_THAT(end.out, Not(HasSubstr("ended"))) << end.err;
  }
}

TEST_F(BadNetwork, SilencesEndAJobIfAndOnlyIfTheyAreLong) {
  start({}, {{"XYLEM_TUNING", "off"}});
  if (IsSkipped()) return;
  expect_start_within(seconds(10));
  wire->set_silent(true);
  EXPECT_FALSE(ranks[0]->wait_for_output("lost", Deadline::after(milliseconds(4500))));
  for (const auto& rank : ranks) {
    EXPECT_FALSE(rank->wait_for_output("lost", Deadline::after(milliseconds(0))));
  }
  wire->set_silent(false);
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->wait_for_new_lines(20, Deadline::after(seconds(10)))) << rank->said();
    EXPECT_THAT(rank->said(), Not(HasSubstr("lost")));
  }
  wire->set_silent(true);
  EXPECT_FALSE(ranks[0]->wait_for_output("lost", Deadline::after(seconds(5))));
  const Deadline promised = Deadline::after(seconds(9) - seconds(5));
  bool is_explained = false;
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->wait_for_output("lost", promised)) << rank->said();
    is_explained = is_explained || rank->said().find("has not answered for") != std::string::npos;
  }
  EXPECT_TRUE(is_explained) << ranks[0]->said() << ranks[1]->said();
}

}  // namespace
}  // namespace xylem::test
