// SPDX-License-Identifier: Apache-2.0
//
// `xylem bench --device cuda` end to end, over the driver in LD_LIBRARY_PATH. In CI this is the
// stand-in of tests/fakes/cuda_driver. Each rank loads the driver separately.
#include "process/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace xylem {
namespace {

using test::run_command;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLimit{60};

test::Finished bench(std::vector<std::string> arguments,
                     const test::Command::Variables& variables = {}) {
  arguments.insert(arguments.begin(), {XYLEM_TEST_BIN "/xylem", "bench"});
  return run_command(arguments, variables, kLimit);
}

/// The operations of a report, after a check that no row has wrong results.
std::set<std::string> right_operations(const Json& report, bool on_stream) {
  std::set<std::string> names;
  for (const Json& row : report["results"]) {
    names.insert(row["op"]);
    EXPECT_EQ(row["wrong"], 0) << row.dump();
    EXPECT_EQ(row["device"], "cuda");
    EXPECT_EQ(row["stream"], on_stream);
    EXPECT_TRUE(row["limit_us"].is_null()) << "the limit is that of the host's memory";
    EXPECT_GE(row["used"]["turns"], row["used"]["idle_turns"]) << row.dump();
    if (row["op"] != "barrier") {  // A barrier may end within the call, without a turn.
      EXPECT_GT(row["used"]["turns"], 0) << row.dump();
      EXPECT_GT(row["used"]["driver_calls"], 0) << row.dump();
    }
  }
  return names;
}

TEST(BenchOnCuda, MeasuresEveryOperationAndFindsNothingWrong) {
  const auto done = bench({"all", "-n", "3", "-b", "60", "-e", "64K", "-f", "32", "--iters", "2",
                           "--device", "cuda", "--json", "-"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  EXPECT_EQ(right_operations(Json::parse(done.out), false).size(), 15U);
  EXPECT_THAT(done.err, HasSubstr("# buffers: CUDA devices, by the rank's number on its host"));
}

TEST(BenchOnCuda, MeasuresCallsInTheOrderOfAStream) {
  for (const bool back_to_back : {false, true}) {
    std::vector<std::string> arguments{"all",    "-n",       "2",      "-b",      "64", "-e",
                                       "4K",     "-f",       "64",     "--iters", "20", "--device",
                                       "cuda:1", "--stream", "--json", "-"};
    if (back_to_back) arguments.emplace_back("--back-to-back");
    const auto done = bench(arguments);
    ASSERT_EQ(done.exit_status, 0) << done.err;
    const auto names = right_operations(Json::parse(done.out), true);
    EXPECT_EQ(names.size(), 13U);
    EXPECT_FALSE(names.contains("send_recv"));
    EXPECT_FALSE(names.contains("exchange"));
    EXPECT_THAT(
        done.err,
        HasSubstr("CUDA device 1 of each process; calls in the order of a stream, by the CPU"));
  }
  const auto both_ways = bench({"send_recv", "--device", "cuda", "--stream"});
  EXPECT_EQ(both_ways.exit_status, 2);
  EXPECT_THAT(both_ways.err, HasSubstr("leave --stream out"));
}

TEST(BenchOnCuda, LetsNoStreamWaitIfAllShareOneHardwareQueue) {
  const test::Command::Variables one_queue{{"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
                                           {"FAKE_CUDA_QUEUES", "1"}};
  std::vector<std::string> arguments{"all_reduce", "-n", "2",        "-b",  "8",
                                     "-e",         "8",  "--device", "cuda"};
  const auto done = bench(arguments, one_queue);
  EXPECT_EQ(done.exit_status, 0) << done.err;
  arguments.emplace_back("--stream");
  const auto refused = bench(arguments, one_queue);
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.err, HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS=1 gives all streams one"));
}

// Each rank has its own device, and the devices can access each other's memory.
TEST(BenchOnCuda, MeasuresCallsOfTheDevicesAlone) {
  const auto done = bench({"all", "-n", "2", "-b", "60", "-e", "64K", "-f", "32", "--iters", "5",
                           "--device", "cuda", "--stream", "--json", "-"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  const Json report = Json::parse(done.out);
  EXPECT_EQ(right_operations(report, true).size(), 13U);
  for (const Json& row : report["results"]) {
    const std::string algorithm = row["algorithm"];
    // An all_to_all_v is not run by the devices, since each of its sizes is known to two ranks
    // only. Messages have no algorithm.
    const bool is_other = row["op"] == "all_to_all_v" || algorithm == "point_to_point";
    EXPECT_EQ(algorithm.starts_with("mapped"), !is_other) << row.dump();
  }
  EXPECT_THAT(done.err, HasSubstr("calls in the order of a stream, by the devices alone"));
}

// Enqueues more calls than may be under way on a stream.
TEST(BenchOnCuda, GivesAStreamManyCalls) {
  const auto done = bench({"all_reduce", "-n", "2", "-b", "8", "-e", "8", "--iters", "1500",
                           "--in-place", "--device", "cuda", "--stream", "--back-to-back"});
  EXPECT_EQ(done.exit_status, 0) << done.err;
}

TEST(BenchOnCuda, NamesTheDevicesThatThereAre) {
  const auto done = bench({"all_reduce", "-n", "2", "--device", "cuda:7"});
  EXPECT_EQ(done.exit_status, 2);
  EXPECT_THAT(done.err, HasSubstr("rank 0: there is no CUDA device 7; this process sees 2"));
}

}  // namespace
}  // namespace xylem
