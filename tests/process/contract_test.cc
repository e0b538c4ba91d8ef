// SPDX-License-Identifier: Apache-2.0
//
// Promises of docs/threading.md and docs/errors.md whose tests need processes: fork, signals,
// stopped ranks, ends of programs, and complete removal of shared memory.
#include "support/shared_memory.h"
#include "support/subprocess.h"
#include "xylem/base/unique_fd.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::seconds;

using Variables = std::map<std::string, std::string>;

/// Starts `size` ranks of contract_rank in a mode. The first `count` ranks must exit with status 0.
std::vector<Process> expect_well(const std::string& mode,
                                 std::uint32_t size,
                                 const Variables& variables,
                                 std::size_t count = SIZE_MAX) {
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, size, "contract_rank", {mode}, variables);
  for (std::size_t rank = 0; rank < std::min(ranks.size(), count); ++rank) {
    const Exit exit = ranks[rank].wait(seconds(60));
    EXPECT_EQ(exit.status, 0) << exit.output;
  }
  return ranks;
}

TEST(Contract, AForkedChildMayUseNothingAndDisturbsNobody) {
  expect_well("fork", 2, {{"XYLEM_TRANSPORT", "shm"}});
  expect_well("fork", 3, {{"XYLEM_TRANSPORT", "tcp"}});
}

/// A port that is currently free.
std::string free_port() {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(probe.get(), generic, size), 0);
  EXPECT_EQ(::getsockname(probe.get(), generic, &size), 0);
  return std::to_string(ntohs(address.sin_port));
}

TEST(Contract, NoPortIsOpenAfterTheStart) {
  expect_well("ports", 3,
              {{"XYLEM_TRANSPORT", "shm"}, {"XYLEM_RENDEZVOUS", "tcp://127.0.0.1:" + free_port()}});
}

TEST(Contract, SignalsOfTheProgramInterruptNothing) {
  expect_well("signals", 2, {{"XYLEM_TRANSPORT", "shm"}});
  expect_well("signals", 2, {{"XYLEM_TRANSPORT", "tcp"}});
}

TEST(Contract, AStoppedRankIsStalledAndNotLost) {
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, 3, "contract_rank", {"loop"});
  for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_output("going", seconds(30)));
  ranks[1].signal(SIGSTOP);
  // This time is longer than the report of a death takes. A stopped rank must not end the calls of
  // other ranks.
  EXPECT_FALSE(ranks[0].wait_for_output("ended", seconds(4)));
  ranks[1].signal(SIGCONT);
  ranks[2].signal(SIGKILL);
  for (const int survivor : {0, 1}) {
    const Exit exit = ranks[static_cast<std::size_t>(survivor)].wait(seconds(20));
    EXPECT_EQ(exit.status, 1);
    EXPECT_NE(exit.output.find("peer_lost: rank 2"), std::string::npos) << exit.output;
  }
}

TEST(Contract, ARankThatStopsAfterItHasAnsweredIsBlamed) {
  auto ranks = expect_well("silence", 4, {{"XYLEM_TIMEOUT", "2s"}}, 3);
  ranks[3].signal(SIGKILL);
  EXPECT_EQ(ranks[3].wait(seconds(10)).status, 128 + SIGKILL);
}

TEST(Contract, WhereTwoStopNobodyIsBlamedAndBothAreNamed) {
  expect_well("two_silent", 4, {{"XYLEM_TIMEOUT", "2s"}}, 2);
}

TEST(Contract, AskedAnewAtALaterLimitARankThatHasAnsweredIsBlamed) {
  expect_well("more_time", 3, {{"XYLEM_TIMEOUT", "20s"}}, 2);
}

// --- A message whose partner stops -------------------------------------------------

using GivesUp = std::tuple<const char*, const char*, const char*>;

class MessageWithAStoppedRank : public testing::TestWithParam<GivesUp> {};

// UCX cannot withdraw a message, so the message ends late and its buffer is held. With the other
// transports, the message ends soon and its buffer is free.
TEST_P(MessageWithAStoppedRank, EndsAndSaysWhetherTheBufferIsHeld) {
  const auto& [transport, direction, way] = GetParam();
  const bool is_held = std::string(transport) == "ucx-tcp";
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, 2, "contract_rank",
                           {"give_up", direction, way, is_held ? "held" : "free"},
                           {{"XYLEM_TRANSPORT", transport}, {"XYLEM_TIMEOUT", "50s"}});
  EXPECT_TRUE(ranks[0].wait_for_output("given up", seconds(30)));
  ranks[1].signal(SIGKILL);
  const Exit exit = ranks[0].wait(seconds(30));
  EXPECT_EQ(exit.status, 0) << exit.output << ranks[1].wait(seconds(5)).output;
}

INSTANTIATE_TEST_SUITE_P(Over,
                         MessageWithAStoppedRank,
                         testing::Combine(testing::Values("shm", "tcp", "ucx-tcp"),
                                          testing::Values("send", "receive"),
                                          testing::Values("abort", "time_out")),
                         [](const testing::TestParamInfo<GivesUp>& row) {
                           std::string name = std::string(std::get<0>(row.param)) + "_" +
                                              std::get<1>(row.param) + "_" + std::get<2>(row.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// --- Programs that end -----------------------------------------------------------

/// A way to end the program, and the expected exit status of the rank that ends.
struct Ending {
  const char* how;
  int status;
};

class ProgramThatEnds : public testing::TestWithParam<std::tuple<const char*, Ending>> {};

// If the program ends normally, the rank leaves the job after its messages have been delivered, and
// other ranks continue. If it ends in another way, the rank is lost. In both cases, calls that need
// the rank fail.
TEST_P(ProgramThatEnds, LeavesInGoodOrderIfItEndsNormallyAndIsLostOtherwise) {
  const auto& [transport, ending] = GetParam();
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, 3, "contract_rank", {"ending", ending.how},
                           {{"XYLEM_TRANSPORT", transport}});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Exit exit = ranks[rank].wait(seconds(40));
    EXPECT_EQ(exit.status, rank == 0 ? ending.status : 0) << rank << ": " << exit.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Over,
    ProgramThatEnds,
    testing::Combine(testing::Values("shm", "tcp", "ucx-tcp"),
                     testing::Values(Ending{"shutdown", 0},
                                     Ending{"return", 0},
                                     Ending{"exit", 0},
                                     Ending{"status", 1},
                                     Ending{"exception", 128 + SIGABRT},
                                     Ending{"signal", 128 + SIGTERM},
                                     Ending{"_exit", 0},
                                     Ending{"from_a_handler", 0},
                                     Ending{"from_a_handler_and_shut_down", 0})),
    [](const testing::TestParamInfo<std::tuple<const char*, Ending>>& row) {
      std::string name = std::string(std::get<0>(row.param)) + "_" + std::get<1>(row.param).how;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// The program's functions with the attribute `destructor` run after the destructors of all C++
// objects, including those of the library.
TEST(Contract, DestructorsAndExitHandlersOfTheProgramMayUseEverything) {
  for (const char* const transport : {"shm", "tcp", "ucx-tcp"}) {
    for (const char* const mode : {"calls_in_destructor", "calls_at_exit"}) {
      const TemporaryDirectory directory;
      auto ranks =
          start_ranks(directory, 3, "contract_rank", {"ending", mode},
                      {{"XYLEM_TRANSPORT", transport}, {"XYLEM_LOG", "debug,file=/dev/null"}});
      for (auto& rank : ranks) {
        const Exit exit = rank.wait(seconds(30));
        EXPECT_EQ(exit.status, 0) << transport << " " << mode << ": " << exit.output;
        EXPECT_NE(exit.output.find("used everything"), std::string::npos) << exit.output;
      }
    }
  }
}

TEST(Contract, NothingIsLeftInSharedMemory) {
  const auto before = shared_memory_names();
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, 2, "contract_rank", {"loop"}, {{"XYLEM_TRANSPORT", "shm"}});
  for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_output("going", seconds(30)));
  for (auto& rank : ranks) rank.signal(SIGKILL);
  for (auto& rank : ranks) EXPECT_EQ(rank.wait(seconds(10)).status, 128 + SIGKILL);
  EXPECT_EQ(left_in_shared_memory(before), std::set<std::string>());
}

}  // namespace
}  // namespace xylem::test
