// SPDX-License-Identifier: Apache-2.0
//
// Starts of real processes under every launcher, and the reports of the survivors when a rank dies.
#include "process/command.h"
#include "process/hosts.h"
#include "runtime/src/bootstrap/socket.h"
#include "support/sanitizer.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using runtime::SocketAddress;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

const std::string kRank = std::string(XYLEM_TEST_BIN) + "/bootstrap_rank";

Deadline soon() { return Deadline::after(seconds(40)); }

std::uint16_t free_port() {
  const auto listener = runtime::listen_on(SocketAddress::any(AF_INET, 0));
  return SocketAddress::of_socket(listener->get())->port();
}

/// A TCP rendezvous address that no other job uses.
std::string new_meeting() { return "tcp://127.0.0.1:" + std::to_string(free_port()); }

Command::Variables xylem_rank(std::size_t rank,
                              std::size_t size,
                              const std::string& rendezvous,
                              const std::string& limit = "30s") {
  return {{"XYLEM_RANK", std::to_string(rank)},
          {"XYLEM_SIZE", std::to_string(size)},
          {"XYLEM_RENDEZVOUS", rendezvous},
          {"XYLEM_START_TIMEOUT", limit}};
}

using Ranks = std::vector<std::unique_ptr<Command>>;

/// Starts the ranks of one job. `variables(rank)` returns the environment of a rank.
template <typename Variables>
Ranks start_ranks(std::size_t size, Variables&& variables, const std::string& mode = "") {
  Ranks ranks;
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::vector<std::string> command = {kRank};
    if (!mode.empty()) command.push_back(mode);
    ranks.push_back(std::make_unique<Command>(command, variables(rank)));
  }
  return ranks;
}

Ranks start_xylem(std::size_t size, const std::string& mode = "") {
  const std::string rendezvous = new_meeting();
  return start_ranks(
      size, [&](std::size_t rank) { return xylem_rank(rank, size, rendezvous); }, mode);
}

std::string gathered(std::size_t size) {
  std::string line = "gathered";
  for (std::size_t rank = 0; rank < size; ++rank) line += " " + std::to_string(rank);
  return line + "\n";
}

void expect_gathered(const Ranks& ranks) {
  for (const auto& rank : ranks)
    EXPECT_TRUE(rank->wait_for_output(gathered(ranks.size()), soon())) << rank->said();
}

/// Closes the standard input of all ranks. Each rank must then leave the job normally.
void expect_good_end(const Ranks& ranks) {
  for (const auto& rank : ranks) rank->write("");
  for (const auto& rank : ranks) {
    const Finished finished = rank->wait(soon());
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_THAT(finished.out, testing::Not(HasSubstr("lost")));
  }
}

bool has_program(const std::string& name) {
  return run_command({"sh", "-c", "command -v " + name}).exit_status == 0;
}

TEST(BootstrapProcess, RanksMeetByTcpAndLeave) {
  const Ranks ranks = start_xylem(3);
  expect_gathered(ranks);
  EXPECT_THAT(ranks[1]->said(), HasSubstr("joined 1/3 by xylem over lo"));
  expect_good_end(ranks);
}

TEST(BootstrapProcess, RanksMeetInADirectoryAndLeaveNothing) {
  const TemporaryDirectory directory;
  const Ranks ranks = start_ranks(
      3, [&](std::size_t rank) { return xylem_rank(rank, 3, "file://" + directory.path()); });
  expect_gathered(ranks);
  expect_good_end(ranks);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(BootstrapProcess, AKilledRankIsHeardByAllWithinTwoSeconds) {
  for (const char* const mode : {"", "--fork"}) {
    const Ranks ranks = start_xylem(5, mode);
    expect_gathered(ranks);
    if (*mode != '\0') {
      for (const auto& rank : ranks) ASSERT_TRUE(rank->wait_for_output("child ", soon()));
    }
    ranks[2]->signal(SIGKILL);
    const Deadline limit = Deadline::after(seconds(2));
    for (const std::size_t survivor : {0U, 1U, 3U, 4U}) {
      EXPECT_TRUE(ranks[survivor]->wait_for_output("lost 2: ", limit))
          << mode << " " << ranks[survivor]->said();
      EXPECT_THAT(ranks[survivor]->said(), testing::Not(testing::ContainsRegex("lost [0134]")));
    }
  }
}

TEST(BootstrapProcess, AStoppedRankIsNotDead) {
  const Ranks ranks = start_xylem(3);
  expect_gathered(ranks);
  ranks[1]->signal(SIGSTOP);
  // Rank 1 is stopped and reads nothing. The messages exceed the capacity of its socket buffers.
  ranks[0]->write("flood 300\nstay\n");
  EXPECT_TRUE(ranks[2]->wait_for_output("heard 300 from 0", soon()))
      << "the other ranks are not held up";
  EXPECT_FALSE(ranks[0]->wait_for_output("lost", Deadline::after(seconds(3))));
  ranks[1]->signal(SIGCONT);
  EXPECT_TRUE(ranks[1]->wait_for_output("heard 300 from 0", soon()))
      << "it hears everything when it goes on";
  EXPECT_THAT(ranks[2]->said(), testing::Not(HasSubstr("lost")));
}

TEST(BootstrapProcess, AMissingRankIsNamedByAll) {
  const std::string rendezvous = new_meeting();
  const Ranks ranks =
      start_ranks(2, [&](std::size_t rank) { return xylem_rank(rank, 3, rendezvous, "1500ms"); });
  for (const auto& rank : ranks) {
    const Finished finished = rank->wait(soon());
    EXPECT_EQ(finished.exit_status, 3);
    EXPECT_THAT(finished.out, AllOf(HasSubstr("timed_out"), HasSubstr("rank 2 did not come within"),
                                    HasSubstr("0, 1 are here")));
  }
}

TEST(BootstrapProcess, ARankThatDiesDuringTheStartIsNamed) {
  const std::string rendezvous = new_meeting();
  Ranks ranks = start_ranks(2, [&](std::size_t rank) { return xylem_rank(rank, 3, rendezvous); });
  // Starts rank 2, and kills it at once.
  auto third =
      std::make_unique<Command>(std::vector<std::string>{kRank}, xylem_rank(2, 3, rendezvous));
  third->signal(SIGKILL);
  static_cast<void>(third->wait(soon()));
  third = std::make_unique<Command>(std::vector<std::string>{kRank}, xylem_rank(2, 3, rendezvous));
  // Rank 2 may have joined before it was killed, or not. So two outcomes are right. Waiting without
  // a message is wrong.
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->wait_for_output("gathered 0 1 2", Deadline::after(seconds(20))) ||
                rank->said().find("failed peer_lost: rank 2") != std::string::npos)
        << rank->said();
  }
}

/// Waits for the report of `rank` after `victim` was killed during the start. Returns an empty
/// string if the report is right.
std::string wrong_end(Command& rank, std::size_t victim, Clock::time_point killed) {
  const auto began = Clock::now();
  const std::string name = std::to_string(victim);
  const std::string died = "failed peer_lost: rank " + name;
  const std::string lost = "lost " + name + ": ";
  // If the victim was killed before it joined, its death is not noticed. Then the start times out.
  const std::string never_came = "failed timed_out: rank " + name + " did not ";
  const auto has_said = [&](const std::string& text) {
    return rank.said().find(text) != std::string::npos;
  };
  rank.wait_for_output("\n", soon());
  if (has_said("gathered")) rank.wait_for_output(lost, Deadline::at(killed + seconds(2)));
  if (has_said(lost)) return {};
  if (has_said(never_came)) return {};
  // The limit counts from `began`, since the test may have waited for other ranks after the kill.
  if (has_said(died) && Clock::now() < std::max(killed, began) + seconds(2)) return {};
  return rank.said() + " after " +
         std::to_string(std::chrono::duration_cast<milliseconds>(Clock::now() - killed).count()) +
         " ms";
}

/// Starts a job many times. In each start, one rank is killed at a random moment.
void kill_during_starts(std::uint64_t seed, const std::function<std::string()>& meet) {
  constexpr int kStarts = kHasSanitizer ? 5 : 12;
  // --gtest_shuffle and --gtest_random_seed select other moments.
  if (testing::GTEST_FLAG(shuffle)) {
    seed += static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  }
  std::mt19937_64 random(seed);
  for (int start = 0; start < kStarts; ++start) {
    const std::size_t size = 2 + random() % 7;
    const std::size_t victim = random() % size;
    const std::string rendezvous = meet();
    const Ranks ranks = start_ranks(
        size, [&](std::size_t rank) { return xylem_rank(rank, size, rendezvous, "3s"); });
    // Kills the victim at the drawn moment, or when it has joined, whichever is earlier.
    const std::chrono::microseconds moment(random() % 15'000);
    ranks[victim]->wait_for_output("joined", Deadline::after(moment));
    const auto killed = Clock::now();
    ranks[victim]->signal(SIGKILL);
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(wrong_end(*ranks[rank], victim, killed), "")
          << "seed " << seed << ", start " << start << ", rank " << rank << " of " << size
          << ", killed " << victim;
    }
  }
}

TEST(BootstrapProcess, ARankKilledAtAnyMomentIsNamedByAllThatMeetByTcp) {
  kill_during_starts(1, new_meeting);
}

TEST(BootstrapProcess, ARankKilledAtAnyMomentIsNamedByAllThatMeetInADirectory) {
  const TemporaryDirectory directory;
  int start = 0;
  kill_during_starts(2, [&] {
    const std::string meeting = directory.path() + "/" + std::to_string(start++);
    std::filesystem::create_directory(meeting);
    return "file://" + meeting;
  });
}

TEST(BootstrapProcess, AnotherSecretIsRefused) {
  const std::string rendezvous = new_meeting();
  const Ranks ranks = start_ranks(2, [&](std::size_t rank) {
    auto variables = xylem_rank(rank, 2, rendezvous, "2s");
    variables.emplace_back("XYLEM_SECRET", rank == 0 ? "right" : "wrong");
    return variables;
  });
  EXPECT_THAT(ranks[1]->wait(soon()).out,
              AllOf(HasSubstr("failed mismatch"), HasSubstr("XYLEM_SECRET")));
  EXPECT_THAT(ranks[0]->wait(soon()).out, HasSubstr("rank 1 did not come"));
}

TEST(BootstrapProcess, AnotherUserOfTheHostIsRefused) {
  if (::geteuid() != 0 || !has_program("setpriv")) {
    GTEST_SKIP() << "being another user needs root and setpriv";
  }
  // A directory that the other user can read.
  std::string pattern = "/tmp/xylem-other-XXXXXX";
  const std::filesystem::path directory = ::mkdtemp(pattern.data());
  std::filesystem::permissions(directory, std::filesystem::perms(0755));
  const std::string program = directory / "rank";
  std::filesystem::copy_file(kRank, program);
  const std::string rendezvous = new_meeting();
  auto variables = xylem_rank(0, 2, rendezvous, "2s");
  Command ours({kRank}, variables);
  variables.front().second = "1";
  Command theirs({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program},
                 variables);
  EXPECT_THAT(theirs.wait(soon()).out, AllOf(HasSubstr("failed mismatch"), HasSubstr("user")));
  EXPECT_THAT(ours.wait(soon()).out, HasSubstr("rank 1 did not come"));
  std::filesystem::remove_all(directory);
  std::filesystem::remove_all("/tmp/xylem-65534");
}

// --- Launchers ----------------------------------------------------------------

Command::Variables torchrun(std::size_t rank,
                            std::size_t size,
                            std::uint16_t port,
                            const std::string& restart = "0") {
  return {{"RANK", std::to_string(rank)},          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)},    {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},   {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", restart}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

TEST(BootstrapProcess, TwoJobsOfTorchrunMeetBesideTheirAgents) {
  // Agents of torchrun listen at MASTER_PORT, so the job must not try to.
  const auto red = runtime::listen_on(SocketAddress::parse("127.0.0.1", 0).value());
  const auto blue = runtime::listen_on(SocketAddress::parse("127.0.0.1", 0).value());
  const auto job = [](const Result<UniqueFd>& agent) {
    const std::uint16_t port = SocketAddress::of_socket(agent->get())->port();
    return start_ranks(3, [port](std::size_t rank) { return torchrun(rank, 3, port); });
  };
  const Ranks first = job(red);
  const Ranks second = job(blue);
  expect_gathered(first);
  expect_gathered(second);
  EXPECT_THAT(first[2]->said(), HasSubstr("joined 2/3 by torchrun over lo"));
  expect_good_end(first);
  expect_good_end(second);
}

TEST(BootstrapProcess, AJobThatTorchrunRestartsMeetsAgain) {
  const auto agent = runtime::listen_on(SocketAddress::parse("127.0.0.1", 0).value());
  const std::uint16_t port = SocketAddress::of_socket(agent->get())->port();
  const Ranks before =
      start_ranks(2, [port](std::size_t rank) { return torchrun(rank, 2, port, "0"); });
  expect_gathered(before);
  before[0]->signal(SIGKILL);
  EXPECT_TRUE(before[1]->wait_for_output("lost 0", soon()));
  // The survivor of the previous start still runs.
  const Ranks after =
      start_ranks(2, [port](std::size_t rank) { return torchrun(rank, 2, port, "1"); });
  expect_gathered(after);
  expect_good_end(after);
}

TEST(BootstrapProcess, AStepOfSlurmMeetsOnItsFirstNode) {
  const std::string job = std::to_string(::getpid());
  const Ranks ranks = start_ranks(4, [&](std::size_t rank) -> Command::Variables {
    return {{"SLURM_PROCID", std::to_string(rank)},
            {"SLURM_NTASKS", "4"},
            {"SLURM_STEP_NODELIST", "localhost"},
            {"SLURM_JOB_ID", job},
            {"SLURM_STEP_ID", "0"}};
  });
  expect_gathered(ranks);
  EXPECT_THAT(ranks[3]->said(), HasSubstr("joined 3/4 by slurm over lo"));
  expect_good_end(ranks);
}

/// Runs two starts in a row under an MPI launcher.
void expect_mpi_starts(const std::vector<std::string>& launcher, const std::string& name) {
  std::vector<std::string> command = launcher;
  command.insert(command.end(), {kRank, "--starts", "2"});
  const Finished finished = run_command(command,
                                        {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                         // PMIx leaks memory from vasprintf(). The leak report
                                         // shows no frame of PMIx, so no suppression can name it.
                                         {"LSAN_OPTIONS", "exitcode=0"}},
                                        seconds(60));
  EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  for (const char* const rank : {"joined 0/2 by ", "joined 1/2 by "}) {
    const std::string line = rank + name;
    const auto first = finished.out.find(line);
    ASSERT_NE(first, std::string::npos) << finished.out << finished.err;
    EXPECT_NE(finished.out.find(line, first + 1), std::string::npos)
        << "the second start: " << finished.out;
  }
  EXPECT_THAT(finished.out, HasSubstr("gathered 0 1\n"));
}

TEST(BootstrapProcess, OpenMpisMpirunStartsRanks) {
  if (!has_program("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  expect_mpi_starts({"mpirun.openmpi", "--oversubscribe", "-n", "2"}, "openmpi");
}

TEST(BootstrapProcess, MpichsMpirunStartsRanks) {
  if (!has_program("mpirun.mpich")) GTEST_SKIP() << "mpirun.mpich is not installed";
  // The launcher kills the other ranks if one exits without finalizing. That is a race, so try
  // often.
  for (int run = 0; run < 10; ++run) expect_mpi_starts({"mpirun.mpich", "-n", "2"}, "mpich");
}

// --- Hosts connected by a network ----------------------------------------------

/// Starts two ranks, each on a host of its own.
Ranks start_across(const Hosts& hosts, const TemporaryDirectory& directory) {
  Ranks ranks;
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks.push_back(hosts.run(rank, {kRank}, xylem_rank(rank, 2, "file://" + directory.path())));
  expect_gathered(ranks);
  return ranks;
}

TEST(BootstrapProcess, AcrossHostsSilenceIsDeathAndStandingStillIsNot) {
  const Hosts hosts;
  if (!hosts.ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  const TemporaryDirectory directory;
  const Ranks ranks = start_across(hosts, directory);
  EXPECT_THAT(ranks[0]->said(), HasSubstr("over wire0"));

  ranks[1]->signal(SIGSTOP);
  ranks[0]->write("flood 300\nstay\n");
  EXPECT_FALSE(ranks[0]->wait_for_output("lost", Deadline::after(seconds(8))))
      << "a stopped rank whose socket buffers are full is not lost";
  ranks[1]->signal(SIGCONT);
  EXPECT_TRUE(ranks[1]->wait_for_output("heard 300 from 0", soon()));

  ASSERT_TRUE(hosts.cut());
  for (const auto& rank : ranks)
    EXPECT_TRUE(rank->wait_for_output("lost", Deadline::after(seconds(12)))) << rank->said();
}

TEST(BootstrapProcess, AcrossHostsSilenceThatBeganBeforeAMessageIsDeathAsSoon) {
  const Hosts hosts;
  if (!hosts.ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  const TemporaryDirectory directory;
  const Ranks ranks = start_across(hosts, directory);
  ASSERT_TRUE(hosts.cut());
  // If the silence began with the message, the rank would be lost after 11 s or later.
  const Deadline limit = Deadline::after(milliseconds(10'500));
  EXPECT_FALSE(ranks[1]->wait_for_output("lost", Deadline::after(milliseconds(4500))));
  ranks[1]->write("flood 1\nstay\n");
  EXPECT_TRUE(ranks[1]->wait_for_output("lost", limit)) << ranks[1]->said();
}

}  // namespace
}  // namespace xylem::test
