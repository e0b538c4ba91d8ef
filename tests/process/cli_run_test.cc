// SPDX-License-Identifier: Apache-2.0
//
// `xylem run`: the environment and output of its ranks, how a job ends, and that no files or
// processes remain.
#include "process/command.h"
#include "support/sanitizer.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
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

/// The process numbers that ranks printed, each on a line "[rank] number".
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
  if (std::thread::hardware_concurrency() < 2) return;  // Needs two sets of cores.
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
  // Rank 1 ignores SIGTERM. Rank 0 fails only after that.
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

TEST(Run, LeavesNothingWhenItIsKilled) {
  const test::TemporaryDirectory parent;
  Command command(shell_ranks(2, "touch ${XYLEM_RENDEZVOUS#file://}/$$; echo $$; exec sleep 1000"),
                  {{"TMPDIR", parent.path()}});
  ASSERT_TRUE(command.wait_for_lines(2, Deadline::after(kLimit)));
  const auto children = test::children_of(command.pid());
  EXPECT_GE(children.size(), 2U);
  EXPECT_FALSE(std::filesystem::is_empty(parent.path()));
  command.signal(SIGKILL);
  expect_gone(pids_of(command.said()));
  expect_gone(children);
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
}

// Without further care a file that is opened later, such as that of signals, takes the number of
// the closed stream.
TEST(Run, EndsWhicheverStandardStreamsAreClosed) {
  for (unsigned closed = 1; closed < 8; ++closed) {
    const auto done = run_command(shell_ranks(2, "echo out; echo err >&2"), {}, kLimit, [closed] {
      for (int fd = 0; fd < 3; ++fd) {
        if ((closed >> fd & 1U) != 0) ::close(fd);
      }
      return true;
    });
    const bool is_output_closed = (closed & 2U) != 0;
    EXPECT_TRUE(done.in_time) << closed;
    EXPECT_EQ(done.exit_status, is_output_closed ? 4 : 0) << closed << done.err;
  }
}

/// Lets `stream` be a device that is always full.
Command::Preparation filling(int stream) {
  return [stream] { return ::dup2(::open("/dev/full", O_WRONLY), stream) == stream; };
}

TEST(Run, ExitsWith4AndTheReasonIfOutputCannotBeWritten) {
  // The second job is over before its output is written.
  for (const char* script : {"trap '' PIPE; echo hello; exec sleep 1000", "echo hello"}) {
    const auto done = run_command(shell_ranks(2, script), {}, kLimit, filling(STDOUT_FILENO));
    EXPECT_TRUE(done.in_time);
    EXPECT_EQ(done.exit_status, 4);
    EXPECT_THAT(done.err, HasSubstr("standard output cannot be written: No space left on device"));
  }
  const auto errors =
      run_command(shell_ranks(2, "echo hello >&2; exit 0"), {}, kLimit, filling(STDERR_FILENO));
  EXPECT_EQ(errors.exit_status, 4) << "nothing else can tell of it";
  const auto failed =
      run_command(shell_ranks(1, "echo hello >&2; exit 7"), {}, kLimit, filling(STDERR_FILENO));
  EXPECT_EQ(failed.exit_status, 7) << "the failure of a rank is the more important";
}

/// Denies a system call, as the profile of a container does.
bool deny(std::uint32_t call) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Run, WatchesItsRanksWherePidfdsAreDenied) {
  const auto prepare = [] { return deny(SYS_pidfd_open); };
  const auto right = run_command(shell_ranks(3, "exit 0"), {}, kLimit, prepare);
  EXPECT_EQ(right.exit_status, 0) << right.err;
  const auto wrong = run_command(shell_ranks(3, "[ $XYLEM_RANK = 2 ] && exit 7; exec sleep 1000"),
                                 {}, kLimit, prepare);
  EXPECT_TRUE(wrong.in_time);
  EXPECT_EQ(wrong.exit_status, 7);
}

TEST(Run, WatchesItsRanksIfItsParentIgnoredTheEndOfChildren) {
  const auto done = run_command(shell_ranks(2, "exit 7"), {}, kLimit,
                                [] { return std::signal(SIGCHLD, SIG_IGN) != SIG_ERR; });
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 7);
}

TEST(Run, ContinuesAtASignalThatItsParentIgnores) {
  Command command(shell_ranks(1, "echo ready; exec cat"), {},
                  [] { return std::signal(SIGHUP, SIG_IGN) != SIG_ERR; });  // nohup
  ASSERT_TRUE(command.wait_for_output("ready", Deadline::after(kLimit)));
  command.signal(SIGHUP);
  command.write("hello\n");
  const Finished done = command.wait(Deadline::after(kLimit));
  EXPECT_EQ(done.exit_status, 0);
  EXPECT_EQ(done.out, "[0] ready\n[0] hello\n");
}

TEST(Run, NeedsNoProc) {
  if (test::kHasSanitizer) GTEST_SKIP() << "the leak sanitizer reads /proc";
  const auto prepare = [] {
    return (::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
  };
  const auto run = run_command(shell_ranks(2, "exit 0"), {}, kLimit, prepare);
  if (run.exit_status == Command::kNotPrepared) GTEST_SKIP() << "no mount namespace can be made";
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const auto bench =
      run_command({kXylem, "bench", "all_reduce", "-e", "8", "--iters", "2"}, {}, kLimit, prepare);
  EXPECT_EQ(bench.exit_status, 0) << bench.err;
}

TEST(Run, EndsTheJobAtItsTimeOut) {
  const auto done = run_command(shell_ranks(2, "exec sleep 1000", {"--timeout", "200ms"}));
  EXPECT_EQ(done.exit_status, 124);
  EXPECT_THAT(done.err, HasSubstr("2 of 2 ranks"));
}

TEST(Run, RequiresTheTransportOfItsRanks) {
  const std::string program = "exec " + kXylem + " bench barrier --iters 2";
  const auto shared = run_command(shell_ranks(2, program, {"--require", "shm"}), {}, kLimit);
  EXPECT_EQ(shared.exit_status, 0) << shared.err;
  // The flag takes precedence over the environment.
  const auto tcp = run_command(shell_ranks(2, program, {"--require", "shm"}),
                               {{"XYLEM_TRANSPORT", "tcp"}, {"XYLEM_REQUIRE", "tcp"}}, kLimit);
  EXPECT_EQ(tcp.exit_status, 2) << tcp.out;
  EXPECT_THAT(tcp.err, HasSubstr("xylem bench: XYLEM_REQUIRE=shm demands shared memory between all "
                                 "ranks, but rank 0 on "));
  EXPECT_THAT(tcp.err, HasSubstr("unset XYLEM_REQUIRE to fall back"));
}

// Ranks in different IPC namespaces count as ranks on different hosts.
TEST(Run, RequiresATransportBetweenHosts) {
  std::string separate = "--ipc";
  if (run_command({"unshare", "--ipc", "true"}).exit_status != 0) {
    if (run_command({"unshare", "-r", "--ipc", "true"}).exit_status != 0) {
      GTEST_SKIP() << "no IPC namespace can be made";
    }
    separate = "-r --ipc";
  }
  const std::string program = "[ $XYLEM_RANK = 0 ] || set -- unshare " + separate + "; exec $@ " +
                              kXylem + " bench barrier --iters 2";
  const auto with = [&](const std::string& required) {
    return run_command(shell_ranks(2, program, {"--require", required}),
                       {{"XYLEM_TRANSPORT", "tcp"}}, kLimit);
  };
  const auto tcp = with("tcp");
  EXPECT_EQ(tcp.exit_status, 0) << tcp.err;
  const auto shm = with("shm");
  EXPECT_EQ(shm.exit_status, 2) << shm.out;
  EXPECT_THAT(shm.err, HasSubstr("use tcp (only ranks with the same boot id, namespaces"));
  const auto rdma = with("rdma");
  EXPECT_EQ(rdma.exit_status, 2) << rdma.out;
  EXPECT_THAT(rdma.err, HasSubstr("XYLEM_REQUIRE=rdma demands RDMA between ranks on different "
                                  "hosts, but rank 0 on "));
  EXPECT_THAT(rdma.err, HasSubstr("use tcp (rank 0 cannot use RDMA: XYLEM_TRANSPORT is tcp"));
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
