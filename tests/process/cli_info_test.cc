// SPDX-License-Identifier: Apache-2.0
//
// `xylem info` end to end: the memory that ranks share, depending on the configured budget. Also
// machines without UCX, and limits on file descriptors and file sizes.
#include "process/command.h"
#include "process/hosts.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace xylem {
namespace {

using test::Finished;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kXylem = XYLEM_TEST_BIN "/xylem";
constexpr std::chrono::seconds kLimit{30};

Finished info(const test::Command::Variables& variables = {}) {
  return test::run_command({kXylem, "info"}, variables, kLimit);
}

TEST(Info, TellsTheMemoryThatRanksOfAHostShare) {
  const Finished done = info();
  EXPECT_EQ(done.exit_status, 0) << done.err;
  // The memory that 8 ranks share is limited to 16 MiB.
  EXPECT_THAT(done.out, ContainsRegex(" 8 ranks  1\\.[0-9]+ MiB each, 15\\.[0-9]+ MiB in all"));
  EXPECT_THAT(done.out, Not(HasSubstr(" 3 ranks")));
}

TEST(Info, TellsOfGpus) {
  EXPECT_THAT(info().out, ContainsRegex("\nGPUs \\(xylem topo shows [^\n]*\n  (none found|GPU0 )"));
}

// A script must be able to detect that the output is truncated.
TEST(Output, ThatCannotBeWrittenIsAnError) {
  for (const std::string arguments :
       {"info", "plan all_reduce", "topo", "bench all_reduce --end 64", "--help"}) {
    const Finished done = test::run_command(
        {"/bin/sh", "-c", "exec " + kXylem + " " + arguments + " >/dev/full"}, {}, kLimit);
    EXPECT_EQ(done.exit_status, 4) << arguments << ": " << done.err;
    EXPECT_THAT(done.err, HasSubstr("the output cannot be written")) << arguments;
  }
}

TEST(Info, TellsWhyABudgetDoesNotServe) {
  const Finished done = info({{"XYLEM_SHARED_MEMORY", "256K"}});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(ContainsRegex(" 2 ranks  [0-9.]+ KiB each"),
                              HasSubstr(" 8 ranks  262144 bytes of shared memory do not serve 7")));
}

// Without this error, UCX would end the process.
TEST(Descriptors, ThatAreTooFewForUcxAreAnError) {
  const Finished done =
      test::run_command({"/bin/sh", "-c",
                         "ulimit -n 25; exec " + kXylem + " run -n 3 -- " + kXylem +
                             " bench all_reduce --end 64 --transport ucx-tcp"},
                        {}, kLimit);
  EXPECT_NE(done.exit_status, 0);
  EXPECT_EQ(done.signal, 0);
  EXPECT_THAT(done.err + done.out,
              AllOf(HasSubstr("raise ulimit -n from 25 to"), Not(HasSubstr("backtrace"))));
}

/// A job of two ranks. `limit` is the largest size of files, as an argument of `ulimit -f`.
Finished bench_with_files_of(const std::string& limit, const std::string& transport) {
  return test::run_command({"/bin/sh", "-c",
                            "ulimit -f " + limit + "; exec " + kXylem + " run -n 2 -- " + kXylem +
                                " bench all_reduce --end 64 --transport " + transport},
                           {}, kLimit);
}

// The limit on file sizes also applies to shared memory, and the system would end the ranks by
// SIGXFSZ.
TEST(FilesThatAreLimited, AreAnErrorThatNamesTheLimit) {
  for (const std::string limit : {"0", "1", "1000"}) {
    const Finished done = bench_with_files_of(limit, "shm");
    EXPECT_NE(done.exit_status, 0) << limit;
    EXPECT_THAT(done.err + done.out, AllOf(HasSubstr("raise ulimit -f"), Not(HasSubstr("SIGXFSZ"))))
        << limit;
  }
}

TEST(FilesThatAreLimited, LeaveTheNetwork) {
  const Finished done = bench_with_files_of("1000", "auto");
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.err + done.out, HasSubstr("raise ulimit -f); tcp is used"));
}

/// A directory for LD_LIBRARY_PATH in which libucp.so.0 is not a library. It simulates a machine
/// without UCX.
class NoUcx {
 public:
  NoUcx() { folder_.write("libucp.so.0", ""); }
  test::Command::Variables variables() const { return {{"LD_LIBRARY_PATH", folder_.path()}}; }

 private:
  const test::TemporaryDirectory folder_;
};

TEST(WithoutUcx, InfoSaysWhy) {
  const NoUcx machine;
  const Finished done = info(machine.variables());
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out,
              ContainsRegex("^xylem [0-9.]+, UCX cannot be opened [^\n]*libucp\\.so\\.0"));
}

TEST(WithoutUcx, JobsRunOverSharedMemoryAndTcp) {
  const NoUcx machine;
  for (const std::string transport : {"auto", "shm", "tcp"}) {
    const Finished done = test::run_command(
        {kXylem, "bench", "all_reduce", "-n", "2", "--end", "64", "--transport", transport},
        machine.variables(), kLimit);
    EXPECT_EQ(done.exit_status, 0) << transport << ": " << done.err;
    EXPECT_THAT(done.out, Not(HasSubstr("UCX"))) << transport;
  }
}

TEST(WithoutUcx, JobThatAsksForItEndsWithAnErrorThatSaysSo) {
  const NoUcx machine;
  const Finished done = test::run_command(
      {kXylem, "bench", "all_reduce", "-n", "2", "--end", "64", "--transport", "ucx-tcp"},
      machine.variables(), kLimit);
  EXPECT_NE(done.exit_status, 0);
  EXPECT_THAT(done.err + done.out, AllOf(HasSubstr("UCX cannot be opened"), HasSubstr("libucx0")));
}

TEST(Info, TellsItForTheRanksOfTheJob) {
  const Finished done =
      test::run_command({kXylem, "run", "-n", "3", "--", kXylem, "info"}, {}, kLimit);
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, ContainsRegex(" 3 ranks  1\\.[0-9]+ MiB each"));
}

TEST(InfoPaths, TellsHowEachRankReachesTheOthers) {
  const auto paths = [](const char* transport) {
    return test::run_command({kXylem, "run", "-n", "3", "--", kXylem, "info", "--paths"},
                             {{"XYLEM_TRANSPORT", transport}}, kLimit);
  };
  const std::string cost = ": [0-9.]+ us, [0-9.]+ GB/s\n";
  const Finished shared = paths("shm");
  EXPECT_EQ(shared.exit_status, 0) << shared.err;
  EXPECT_THAT(shared.out, ContainsRegex("rank 1 on [^\n]*\n\\[0\\]   shm to 0, 2" + cost));
  EXPECT_THAT(shared.out, ContainsRegex("rank 2 on [^\n]*\n\\[0\\]   shm to 0, 1" + cost));
  EXPECT_THAT(shared.out, Not(HasSubstr("slow")));
  EXPECT_THAT(paths("tcp").out, ContainsRegex("rank 0 on [^\n]*\n\\[0\\]   tcp to 1, 2" + cost));
}

/// What rank 0 prints of a job with ranks 0 and 1 on one host, and ranks 2 and 3 on another.
Finished paths_across(const test::Hosts& hosts, const test::Command::Variables& settings) {
  std::vector<std::unique_ptr<test::Command>> ranks;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    test::Command::Variables variables = {
        {"XYLEM_RANK", std::to_string(rank)},
        {"XYLEM_SIZE", "4"},
        {"XYLEM_RENDEZVOUS", "tcp://" + test::Hosts::address(0) + ":29400"},
        {"XYLEM_SECRET", "only-the-ranks-know-this"}};
    variables.insert(variables.end(), settings.begin(), settings.end());
    ranks.push_back(hosts.run(rank / 2, {kXylem, "info", "--paths"}, variables));
  }
  Finished first;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Finished done = ranks[rank]->wait(Deadline::after(kLimit));
    EXPECT_EQ(done.exit_status, 0) << rank << ": " << done.err;
    if (rank == 0) first = std::move(done);
  }
  return first;
}

/// The interface of each of the four ranks, as `info --paths` names it.
std::vector<std::string> interfaces_in(const std::string& text) {
  std::vector<std::string> found;
  for (int rank = 0; rank < 4; ++rank) {
    std::smatch match;
    const std::regex line("rank " + std::to_string(rank) + " on [^ ]+, ([a-z0-9]+)");
    found.push_back(std::regex_search(text, match, line) ? match[1].str() : "none");
  }
  return found;
}

constexpr std::uint64_t kMuch = 100'000;  // More than the start sends without payload.

TEST(InfoPaths, UseEachNetworkBetweenTheHosts) {
  const test::Hosts hosts;
  if (!hosts.ok() || !hosts.add_wire(/*is_broken=*/false))
    GTEST_SKIP() << "this machine makes no network namespaces";
  const Finished done = paths_across(hosts, {{"XYLEM_INTERFACES", "wire0,wire1"}});
  EXPECT_THAT(interfaces_in(done.out), ElementsAre("wire0", "wire1", "wire0", "wire1")) << done.out;
  EXPECT_THAT(done.err, IsEmpty());
  for (const std::size_t host : {0U, 1U}) EXPECT_GT(hosts.bytes_sent(host, "wire1"), kMuch);

  const std::uint64_t before = hosts.bytes_sent(0, "wire1");
  const Finished one = paths_across(hosts, {});  // They are no network cards.
  EXPECT_THAT(interfaces_in(one.out), ElementsAre("wire0", "wire0", "wire0", "wire0")) << one.out;
  EXPECT_LT(hosts.bytes_sent(0, "wire1"), before + kMuch);
}

TEST(InfoPaths, DoNotUseANetworkThatDoesNotJoinTheHosts) {
  const test::Hosts hosts;
  if (!hosts.ok() || !hosts.add_wire(/*is_broken=*/true))
    GTEST_SKIP() << "this machine makes no network namespaces";
  const Finished done = paths_across(hosts, {{"XYLEM_INTERFACES", "wire0,wire1"}});
  EXPECT_THAT(interfaces_in(done.out), ElementsAre("wire0", "wire0", "wire0", "wire0")) << done.out;
  EXPECT_THAT(done.err, ContainsRegex("the network 10\\.99\\.0\\.0/24 carries no payload: [^ ]+ "
                                      "cannot reach [^ ]+ at 10\\.99\\.0\\.[12]:[0-9]+: "));
}

TEST(InfoPaths, NeedsAJobOfSeveralRanks) {
  const Finished done = test::run_command({kXylem, "info", "--paths"}, {}, kLimit);
  EXPECT_EQ(done.exit_status, 2);
  EXPECT_THAT(done.err, HasSubstr("start more: xylem run -n 2 -- xylem info --paths"));
}

}  // namespace
}  // namespace xylem
