// SPDX-License-Identifier: Apache-2.0
//
// `xylem bench` end to end: exit statuses, the table, JSON, and the messages when a rank dies.
#include "process/command.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace xylem {
namespace {

using test::Command;
using test::Finished;
using test::run_command;
using testing::EndsWith;
using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kXylem = XYLEM_TEST_BIN "/xylem";
constexpr std::chrono::seconds kLimit{60};

std::vector<std::string> bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{kXylem, "bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Finished run_bench(const std::vector<std::string>& arguments,
                   const Command::Variables& variables = {},
                   const Command::Preparation& prepare = {}) {
  return run_command(bench(arguments), variables, kLimit, prepare);
}

/// The rows of the table, which are all lines except comments.
std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

TEST(Bench, StartsItsOwnRanksAndPrintsOneRightRowForEachSize) {
  const auto done = run_bench({"all_reduce", "-n", "2", "-e", "64", "--iters", "3"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  const auto rows = rows_of(done.out);
  ASSERT_EQ(rows.size(), 4U) << done.out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), 11U);
    EXPECT_EQ(rows[i][0], std::to_string(8 << i));
    EXPECT_EQ(rows[i][8], "0") << "#wrong";
    EXPECT_EQ(rows[i][9], "-") << "such small sizes fit into caches, so there is no value";
  }
  EXPECT_THAT(done.out, HasSubstr("# 2 ranks on 1 host, started by xylem"));
  EXPECT_THAT(done.out, HasSubstr("shm over "));
}

TEST(Bench, TellsTheShareOfTheMachinesLimitThatALargeRowReaches) {
  const auto done = run_bench({"all_reduce", "-n", "2", "-b", "16M", "-e", "16M", "--iters", "3"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  const auto rows = rows_of(done.out);
  ASSERT_EQ(rows.size(), 1U) << done.out;
  EXPECT_GT(std::stod(rows[0][9]), 0);
}

TEST(Bench, TakesBuffersFromTheLibraryAsAsked) {
  for (const char* operation :
       {"all_reduce", "all_gather", "broadcast", "send_recv", "ping_pong"}) {
    const auto done = run_bench(
        {operation, "-n", "3", "-b", "16K", "-e", "1M", "-f", "8", "--allocate", "--iters", "5"});
    EXPECT_EQ(done.exit_status, 0) << done.out << done.err;
  }
}

TEST(Bench, TakesPartsAndOffsetsAsAsked) {
  for (const char* parts : {"even", "rising", "one"}) {
    const auto done = run_bench({"all_gather_v", "-n", "3", "-b", "1000", "-e", "1000", "--parts",
                                 parts, "--offset", "4", "--iters", "2"});
    EXPECT_EQ(done.exit_status, 0) << done.err;
  }
}

// The build has no CUDA, or the machine has no device, so there is no memory for the buffers.
TEST(Bench, OnDevicesThatAreNotThereSaysWhatIsMissing) {
  const auto done = run_bench({"all_reduce", "-n", "2", "--device", "cuda"},
                              {{"CUDA_VISIBLE_DEVICES", "-1"}, {"LD_LIBRARY_PATH", ""}});
  EXPECT_EQ(done.exit_status, 2);
  EXPECT_THAT(done.err, testing::AnyOf(HasSubstr("rank 0: no CUDA device can be used"),
                                       HasSubstr("rank 0: this Xylem was built without CUDA")));
}

TEST(Bench, OfAllMeasuresEveryOperationAndFindsNothingWrong) {
  const auto done = run_bench(
      {"all", "-n", "3", "-b", "4", "-e", "4K", "-f", "16", "--iters", "2", "--json", "-"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  const Json report = Json::parse(done.out);
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(report["environment"]["ranks"], 3);
  std::set<std::string> seen;
  for (const Json& row : report["results"]) {
    seen.insert(row["op"]);
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_LE(row["time_us"]["min"], row["time_us"]["p50"]);
    EXPECT_LE(row["time_us"]["p50"], row["time_us"]["p99"]);
    EXPECT_FALSE(row["algorithm"].get<std::string>().empty());
  }
  EXPECT_EQ(seen.size(), 15U);
}

TEST(Bench, MeasuresInPlaceEveryTypeThatReduces) {
  for (const char* type :
       {"int8", "uint64", "bool", "float16", "bfloat16", "float64", "float8_e4m3", "float8_e5m2"}) {
    const auto done = run_bench({"reduce_scatter", "-n", "3", "-b", "96", "-e", "96", "--type",
                                 type, "--in-place", "--iters", "1"});
    EXPECT_EQ(done.exit_status, 0) << type << done.out << done.err;
  }
}

TEST(Bench, RunsOnTheRanksOfALauncher) {
  const auto done = run_command(
      {kXylem, "run", "-n", "2", "--", kXylem, "bench", "broadcast", "-e", "8", "--iters", "2"}, {},
      kLimit);
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("[0] # 2 ranks on 1 host"));
  EXPECT_THAT(done.out, testing::Not(HasSubstr("[1]"))) << "only rank 0 prints";
}

TEST(Bench, RefusesAnotherNumberOfRanksThanTheLauncherStarted) {
  const auto done = run_command(
      {kXylem, "run", "-n", "2", "--", kXylem, "bench", "barrier", "-n", "3"}, {}, kLimit);
  EXPECT_EQ(done.exit_status, 2);
  EXPECT_THAT(done.err, HasSubstr("started 2 ranks"));
}

TEST(Bench, ForcesTheAlgorithmOnWhatItMeasures) {
  const auto done =
      run_bench({"all_reduce", "-b", "64K", "-e", "64K", "--algorithm", "ring", "--iters", "2"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  const auto rows = rows_of(done.out);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].back(), "ring");
}

TEST(Bench, SaysOnceWhatIsWrongWithTheUsage) {
  const std::vector<std::pair<std::vector<std::string>, testing::Matcher<std::string>>> cases{
      {{"all_reduce", "--type", "float33"}, HasSubstr("float33")},
      {{"all_gather_v", "--parts", "odd"}, HasSubstr("--parts")},
      {{"all_reduce", "--offset", "4096"}, HasSubstr("--offset")},
      {{"all_reduce", "--offset", "2"}, HasSubstr("--offset")},
      {{"all_reduce", "--stream"}, HasSubstr("add --device cuda")},
      {{"all_reduce", "--allocate", "--device", "cuda"},
       HasSubstr("leave it out with --device cuda")},
      {{"broadcast", "-n", "2", "--root", "2"},
       EndsWith("xylem bench: --root 2: there are 2 ranks, so the last one is 1\n")},
      {{"all_reduce", "-n", "2", "--algorithm", "rinq"}, HasSubstr("did you mean ring?")},
      {{"all_reduce", "-n", "2", "--baseline", "/nonexistent.json"},
       EndsWith("xylem bench: --baseline /nonexistent.json: cannot read it (No such file or "
                "directory)\n")}};
  for (const auto& [arguments, text] : cases) {
    const auto done = run_bench(arguments);
    EXPECT_EQ(done.exit_status, 2) << done.err;
    EXPECT_THAT(done.err, text);
  }
}

TEST(Bench, ComparesWithAnEarlierReport) {
  const test::TemporaryDirectory directory;
  const auto run_with = [&](const char* flag) {
    return run_bench({"all_gather", "-b", "1K", "-e", "2K", "--iters", "2", flag,
                      directory.path() + "/baseline.json"});
  };
  EXPECT_EQ(run_with("--json").exit_status, 0);
  const auto done = run_with("--baseline");
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("vs base"));
  for (const auto& row : rows_of(done.out)) {
    ASSERT_EQ(row.size(), 12U);
    EXPECT_GT(std::stod(row[10]), 0);
  }
}

/// The ranks that a command has started. Its other child process is in another session.
std::vector<pid_t> ranks_of(const Command& command) {
  auto ranks = test::children_of(command.pid());
  std::erase_if(ranks, [&](pid_t pid) { return ::getsid(pid) != ::getsid(command.pid()); });
  return ranks;
}

void expect_gone(const std::vector<pid_t>& ranks) {
  for (const pid_t pid : ranks) {
    EXPECT_TRUE(test::wait_until_gone(pid, Deadline::after(kLimit)));
  }
}

TEST(Bench, ExitsWith3AndTheReasonWhenARankDies) {
  Command command(bench({"all_reduce", "-n", "3", "-e", "64K", "--iters", "100000000"}));
  ASSERT_TRUE(command.wait_for_output("algorithm\n", Deadline::after(kLimit)));
  const auto ranks = ranks_of(command);
  ASSERT_EQ(ranks.size(), 3U);
  ::kill(ranks[2], SIGKILL);
  const auto done = command.wait(Deadline::after(kLimit));
  EXPECT_TRUE(done.in_time);
  EXPECT_EQ(done.exit_status, 3);
  EXPECT_THAT(done.err, HasSubstr("was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(done.err, HasSubstr("rank 2"));
  expect_gone(ranks);
}

// The test starts the ranks without a launcher, so only Xylem can end the other ranks.
TEST(Bench, EndsOnAllRanksIfOneCannotReadTheFileOfSchedules) {
  const test::TemporaryDirectory meeting;
  std::vector<std::unique_ptr<Command>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    Command::Variables variables{{"XYLEM_RANK", std::to_string(rank)},
                                 {"XYLEM_SIZE", "3"},
                                 {"XYLEM_RENDEZVOUS", "file://" + meeting.path()}};
    if (rank == 1) variables.emplace_back("XYLEM_SCHEDULES", "/nowhere/plans");
    ranks.push_back(std::make_unique<Command>(bench({"barrier"}), variables));
  }
  const Deadline limit = Deadline::after(std::chrono::seconds(20));  // A start may take 60 s.
  for (const auto& rank : ranks) {
    const auto done = rank->wait(limit);
    EXPECT_TRUE(done.in_time);
    EXPECT_NE(done.exit_status, 0);
    EXPECT_THAT(done.err, HasSubstr(rank == ranks[1] ? "XYLEM_SCHEDULES=/nowhere/plans: the file"
                                                     : "rank 1 ended during the start"));
  }
}

TEST(Bench, KeepsTheRowsSoFarAndNoRankAtCtrlC) {
  const test::TemporaryDirectory directory;
  const std::string json = directory.path() + "/keep.json";
  const std::string csv = directory.path() + "/keep.csv";
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::ofstream(json) << "before";
  const std::vector<std::string> reports{"--json", json, "--csv", csv};
  const auto interrupt = [&](std::vector<std::string> arguments, const char* output, int signal) {
    arguments.insert(arguments.end(), reports.begin(), reports.end());
    Command command(bench(arguments));
    EXPECT_TRUE(command.wait_for_output(output, Deadline::after(kLimit)));
    const auto ranks = ranks_of(command);
    EXPECT_FALSE(ranks.empty());
    command.signal(signal);
    EXPECT_EQ(command.wait(Deadline::after(kLimit)).exit_status, 128 + signal);
    expect_gone(ranks);
  };
  interrupt({"all_reduce", "--iters", "100000000"}, "algorithm\n", SIGINT);
  EXPECT_EQ(text(json), "before") << "there is no row to replace it";
  EXPECT_FALSE(std::filesystem::exists(csv));
  // When the first row is printed, 23 rows follow, and each takes 0.2 s.
  interrupt({"all_reduce"}, "\n           8  ", SIGTERM);
  const Json report = Json::parse(text(json));
  EXPECT_EQ(report["complete"], false);
  ASSERT_GE(report["results"].size(), 1U);
  EXPECT_EQ(report["results"][0]["bytes"], 8);
  EXPECT_FALSE(report["environment"]["transports"].empty());
  EXPECT_THAT(text(csv), HasSubstr("\nall_reduce,"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 2);
}

TEST(Bench, ExitsWith4IfItsOutputCannotBeWritten) {
  Command command(bench({"all_reduce"}));
  ASSERT_TRUE(command.wait_for_output("algorithm\n", Deadline::after(kLimit)));
  command.stop_reading();
  const auto left = command.wait(Deadline::after(kLimit));
  EXPECT_EQ(left.exit_status, 4);
  EXPECT_THAT(left.err, EndsWith("xylem bench: the output cannot be written: Broken pipe\n"));
  const auto full = run_bench({"all_reduce"}, {}, [] {
    return ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO) == STDOUT_FILENO;
  });
  EXPECT_EQ(full.exit_status, 4);
  EXPECT_THAT(full.err, EndsWith("output cannot be written: No space left on device\n"));
  const auto closed = run_bench({"all_reduce"}, {}, [] { return ::close(STDOUT_FILENO) == 0; });
  EXPECT_EQ(closed.exit_status, 4);
  for (const char* flag : {"--json", "--csv"}) {
    const auto report = run_bench({"all_reduce", "-e", "8", "--iters", "2", flag, "/dev/full"});
    EXPECT_EQ(report.exit_status, 4);
    EXPECT_THAT(report.err, HasSubstr(std::string("xylem bench: ") + flag +
                                      " /dev/full cannot be written: No space left on device\n"));
  }
}

TEST(Bench, PrintsCsvAndTheAverageAfterTheRows) {
  const auto done = run_bench({"all_gather", "-b", "1K", "-e", "2K", "--iters", "2", "--csv", "-"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out, testing::StartsWith("op,algorithm,transport,ranks,bytes"));
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 3);
  EXPECT_EQ(rows_of(done.err).size(), 2U) << "the table";
  EXPECT_THAT(done.err, testing::ContainsRegex("\n# average bus bandwidth: [0-9.e-]+ GB/s\n$"));
}

TEST(Bench, RequiresTheTransportThatIsAskedFor) {
  const auto shared = run_bench({"barrier", "--iters", "2", "--require", "shm"});
  EXPECT_EQ(shared.exit_status, 0) << shared.err;
  const auto tcp = run_bench({"barrier", "--iters", "2", "--require", "shm", "--transport", "tcp"});
  EXPECT_EQ(tcp.exit_status, 2) << tcp.out;
  EXPECT_THAT(tcp.err, HasSubstr("xylem bench: XYLEM_REQUIRE=shm demands"));
  EXPECT_THAT(tcp.err, HasSubstr(" use tcp: start all ranks on one host"));
  const auto unknown = run_bench({"barrier", "--require", "ucx-rdma"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("\"ucx-rdma\" is none of shm, tcp, rdma\n"));
}

TEST(Bench, SaysThatRanksShareCores) {
  const auto one_core = [] {
    cpu_set_t cores;
    if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return false;
    int first = 0;
    while (!CPU_ISSET(first, &cores)) ++first;
    CPU_ZERO(&cores);
    CPU_SET(first, &cores);
    return ::sched_setaffinity(0, sizeof cores, &cores) == 0;
  };
  const auto shared = run_bench({"barrier", "-n", "3", "--iters", "2"}, {}, one_core);
  EXPECT_EQ(shared.exit_status, 0) << shared.err;
  EXPECT_THAT(shared.err, HasSubstr("1 core for 3 ranks, which take turns"));
  EXPECT_THAT(shared.err, HasSubstr("--iters"));
  const auto alone = run_bench({"barrier", "-n", "1", "--iters", "2"}, {}, one_core);
  EXPECT_EQ(alone.err, "");
}

}  // namespace
}  // namespace xylem
