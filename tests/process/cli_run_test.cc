// SPDX-License-Identifier: Apache-2.0
//
// `xylem run`: the environment and output of its ranks, how a job ends, and that it leaves nothing
// behind.
#include "process/command.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace xylem {
namespace {

using test::Command;
using test::Finished;
using test::run_command;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const std::string kXylem = XYLEM_TEST_BIN "/xylem";
constexpr std::chrono::seconds kLimit{30};

std::vector<std::string> shell_ranks(int ranks,
                                     const std::string& script,
                                     const std::vector<std::string>& flags = {}) {
  std::vector<std::string> command{kXylem, "run", "-n", std::to_string(ranks)};
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"--", "sh", "-c", script});
  return command;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The numbers that ranks printed, each on a line "[rank] number".
std::vector<pid_t> pids_of(const std::string& text) {
  std::vector<pid_t> pids;
  for (const std::string& line : lines_of(text)) {
    pids.push_back(std::stoi(line.substr(line.find(' ') + 1)));
  }
  return pids;
}

void expect_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    EXPECT_TRUE(test::wait_until_gone(pid, Deadline::after(std::chrono::seconds(5)))) << pid;
  }
}

TEST(Run, LeadsEveryLineOfBothStreamsByItsRank) {
  const auto done = run_command(shell_ranks(2, "echo out; echo err >&2; printf last"));
  EXPECT_EQ(done.exit_status, 0);
  EXPECT_THAT(lines_of(done.out),
              UnorderedElementsAre("[0] out", "[0] last", "[1] out", "[1] last"));
  EXPECT_THAT(lines_of(done.err), UnorderedElementsAre("[0] err", "[1] err"));
}

TEST(Run, MixesRanksOnlyBetweenLines) {
  // Each rank writes each line in three pieces.
  const auto done = run_command(shell_ranks(4,
                                            "i=0; while [ $i -lt 500 ]; do printf 'a%s' "
                                            "$XYLEM_RANK; printf b; echo c; i=$((i+1)); done"));
  const auto lines = lines_of(done.out);
  EXPECT_EQ(lines.size(), 2000U);
  const std::regex whole(R"(\[(\d)\] a\1bc)");
  for (const std::string& line : lines) EXPECT_TRUE(std::regex_match(line, whole)) << line;
}

TEST(Run, WritesLinesAsTheyAreWithoutPrefix) {
  const auto done = run_command(shell_ranks(2, "echo plain", {"--no-prefix"}));
  EXPECT_EQ(done.out, "plain\nplain\n");
}

TEST(Run, BindsRanksToCpusOfTheirOwn) {
  const std::string script = "grep Cpus_allowed_list /proc/self/status";
  const auto free = run_command(shell_ranks(1, script, {"--no-prefix"}));
  const auto alone = run_command(shell_ranks(1, script, {"--no-prefix", "--bind"}));
  EXPECT_EQ(alone.exit_status, 0) << alone.err;
  if (std::thread::hardware_concurrency() < 2) return;  // There are no two sets of cores.
  const auto two = run_command(shell_ranks(2, script, {"--no-prefix", "--bind"}));
  EXPECT_EQ(two.exit_status, 0) << two.err;
  const auto sets = lines_of(two.out);
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_NE(sets[0], sets[1]);
  EXPECT_NE(lines_of(free.out)[0], sets[0]);
}

TEST(Run, GivesEachRankItsPlaceInOneJob) {
  const auto script = "echo $XYLEM_RANK/$XYLEM_SIZE; echo $XYLEM_JOB $XYLEM_SECRET";
  const auto first = run_command(shell_ranks(3, script, {"--no-prefix"}));
  const auto second = run_command(shell_ranks(3, script, {"--no-prefix"}));
  const auto lines = lines_of(first.out + second.out);
  const std::multiset<std::string> all(lines.begin(), lines.end());
  EXPECT_EQ(all.count("0/3"), 2U);
  EXPECT_EQ(all.count("2/3"), 2U);
  const std::set<std::string> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), 3U + 2U) << "each of the two jobs has one identity";
}

TEST(Run, RanksMeetInADirectoryThatOnlyTheUserEntersAndThatGoes) {
  const test::TemporaryDirectory parent;
  const auto done = run_command(
      shell_ranks(1, "stat -c %a ${XYLEM_RENDEZVOUS#file://}; touch ${XYLEM_RENDEZVOUS#file://}/x",
                  {"--no-prefix"}),
      {{"TMPDIR", parent.path()}});
  EXPECT_EQ(done.out, "700\n");
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
}

TEST(Run, GivesItsInputToTheFirstRankOnly) {
  Command command(shell_ranks(2, "cat"));
  command.write("hello\n");
  EXPECT_EQ(command.wait(Deadline::after(kLimit)).out, "[0] hello\n");
}

TEST(Run, SaysWhichRankExitedFirstAndEndsTheRest) {
  const auto done =
      run_command(shell_ranks(3, "echo $$; [ $XYLEM_RANK = 1 ] && exit 7; exec sleep 1000"));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 7);
  EXPECT_EQ(done.err, "xylem run: rank 1 exited with status 7: ending the other ranks\n");
  expect_gone(pids_of(done.out));
}

TEST(Run, SaysWhichSignalKilledARank) {
  const auto done =
      run_command(shell_ranks(2, "[ $XYLEM_RANK = 1 ] && kill -9 $$; exec sleep 1000"));
  EXPECT_EQ(done.exit_status, 128 + SIGKILL);
  EXPECT_THAT(done.err, HasSubstr("rank 1 was killed by signal 9 (SIGKILL)"));
}

TEST(Run, KillsWhatIgnoresBeingEnded) {
  // Rank 1 ignores SIGTERM before rank 0 fails.
  const auto done = run_command(shell_ranks(2,
                                            "meeting=${XYLEM_RENDEZVOUS#file://}; echo $$;"
                                            "if [ $XYLEM_RANK = 1 ]; then trap '' TERM; "
                                            "touch $meeting/deaf; while :; do sleep 1; done; fi;"
                                            "until [ -e $meeting/deaf ]; do :; done; exit 1"));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 1);
  EXPECT_THAT(done.err, HasSubstr("killing"));
  expect_gone(pids_of(done.out));
}

TEST(Run, EndsProcessesThatRanksLeftBehind) {
  const auto done = run_command(shell_ranks(2, "setsid sh -c 'echo $$; exec sleep 1000' & exit 0"));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 0);
  EXPECT_THAT(done.err, HasSubstr("left behind"));
  expect_gone(pids_of(done.out));
}

TEST(Run, EndsEverythingAtCtrlC) {
  Command command(shell_ranks(2,
                              "echo $$; sh -c 'echo $$; exec sleep 1000' & setsid sh -c 'echo $$; "
                              "exec sleep 1000' & wait"));
  ASSERT_TRUE(command.wait_for_lines(6, Deadline::after(kLimit)));
  command.signal(SIGINT);
  const Finished done = command.wait(Deadline::after(kLimit));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 128 + SIGINT);
  EXPECT_EQ(pids_of(done.out).size(), 6U);
  expect_gone(pids_of(done.out));
}

TEST(Run, KillsAtASecondCtrlC) {
  Command command(
      shell_ranks(1, "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(command.wait_for_output("ready", Deadline::after(kLimit)));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for_output("asked", Deadline::after(kLimit)));
  const auto start = Clock::now();
  command.signal(SIGINT);
  EXPECT_EQ(command.wait(Deadline::after(kLimit)).exit_status, 128 + SIGINT);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2))
      << "the grace period should not be waited for";
}

TEST(Run, HearsCtrlCWhileNobodyReadsItsOutput) {
  Command command(shell_ranks(2, "exec yes"));
  ASSERT_TRUE(command.wait_for_output("[1] y", Deadline::after(kLimit)));
  command.signal(SIGINT);
  const Finished done = command.wait(Deadline::after(kLimit), /*silently=*/true);
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 128 + SIGINT);
}

TEST(Run, EndsWhenItsReaderIsGone) {
  Command command(shell_ranks(2, "exec yes"));
  ASSERT_TRUE(command.wait_for_output("y", Deadline::after(kLimit)));
  command.stop_reading();
  const Finished done = command.wait(Deadline::after(kLimit));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 128 + SIGPIPE);
}

TEST(Run, TakesItsRanksAlongWhenItIsKilled) {
  // The test removes this directory, since a killed `xylem run` cannot.
  const test::TemporaryDirectory meeting;
  Command command(shell_ranks(2, "echo $$; exec sleep 1000"), {{"TMPDIR", meeting.path()}});
  ASSERT_TRUE(command.wait_for_lines(2, Deadline::after(kLimit)));
  const auto pids = pids_of(command.said());
  command.signal(SIGKILL);
  expect_gone(pids);
}

TEST(Run, EndsTheJobAtItsTimeOut) {
  const auto done = run_command(shell_ranks(2, "exec sleep 1000", {"--timeout", "200ms"}));
  EXPECT_EQ(done.exit_status, 124);
  EXPECT_THAT(done.err, HasSubstr("2 of 2 ranks"));
}

TEST(Run, SaysWhyAProgramCannotBeStarted) {
  const auto missing = run_command({kXylem, "run", "-n", "2", "/nonexistent/program"});
  EXPECT_EQ(missing.exit_status, 127);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent/program: No such file"));
  const auto barred = run_command({kXylem, "run", "-n", "2", "/dev/null"});
  EXPECT_EQ(barred.exit_status, 126);
}

}  // namespace
}  // namespace xylem
