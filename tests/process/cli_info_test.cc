// SPDX-License-Identifier: Apache-2.0
//
// `xylem info` end to end: the memory that ranks share, depending on the configured budget. Also
// machines without UCX, and limits on file descriptors and file sizes.
#include "process/command.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xylem {
namespace {

using test::Finished;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
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

TEST(InfoPaths, NeedsAJobOfSeveralRanks) {
  const Finished done = test::run_command({kXylem, "info", "--paths"}, {}, kLimit);
  EXPECT_EQ(done.exit_status, 2);
  EXPECT_THAT(done.err, HasSubstr("start more: xylem run -n 2 -- xylem info --paths"));
}

}  // namespace
}  // namespace xylem
