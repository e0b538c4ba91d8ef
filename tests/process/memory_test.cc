// SPDX-License-Identifier: Apache-2.0
//
// While a rank is late, the resident memory of the others must not grow by more than 64 MiB beyond
// the buffers. If memory is exhausted, calls end with an error and no rank dies.
#include "support/subprocess.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

using Case = std::tuple<const char*, const char*, std::uint32_t>;

class MemoryOfALateRank : public testing::TestWithParam<Case> {};

TEST_P(MemoryOfALateRank, IsBounded) {
  const auto& [transport, operation, size] = GetParam();
  const TemporaryDirectory directory;
  // In the test of messages, there are fewer bytes, since each small message costs a call and a
  // context switch.
  const std::uint64_t bytes = std::string(operation) == "messages" ? 20 << 20 : 160 << 20;
  const std::uint64_t even = bytes - bytes % size;
  auto ranks = start_ranks(directory, size, "memory_rank", {operation, std::to_string(even)},
                           {{"XYLEM_TRANSPORT", transport}});
  for (Process& rank : ranks) {
    const Exit exit = rank.wait(std::chrono::seconds(60));
    EXPECT_EQ(exit.status, 0) << exit.output;
  }
}

std::string label(const testing::TestParamInfo<Case>& row) {
  const auto& [transport, operation, size] = row.param;
  return std::string(operation) + "_" + std::to_string(size) + "_" + transport;
}

const auto kCalls =
    testing::Values("broadcast", "all_reduce", "scatter", "all_to_all", "broadcasts", "messages");

INSTANTIATE_TEST_SUITE_P(WithinAHost,
                         MemoryOfALateRank,
                         testing::Combine(testing::Values("shm"), kCalls, testing::Values(2U, 5U)),
                         label);
INSTANTIATE_TEST_SUITE_P(OverTcp,
                         MemoryOfALateRank,
                         testing::Combine(testing::Values("tcp"), kCalls, testing::Values(3U)),
                         label);

// --- Too little memory ---------------------------------------------------------------

/// Makes a call while each rank may allocate only 16 MiB more address space. All ranks must exit
/// with status 0. Returns their output.
std::vector<std::string> call_with_little(const std::string& operation,
                                          std::map<std::string, std::string> environment) {
  // When a thread gets its own arena, the allocator maps 128 MiB for a moment. A limit computed at
  // this moment would be far too high.
  environment["MALLOC_ARENA_MAX"] = "1";
  const TemporaryDirectory directory;
  constexpr std::uint64_t kBytes = 30 << 20;
  auto ranks = start_ranks(directory, 3, "memory_rank",
                           {operation, std::to_string(kBytes), "100", "16"}, environment);
  std::vector<std::string> said;
  for (Process& rank : ranks) {
    const Exit exit = rank.wait(std::chrono::seconds(60));
    EXPECT_EQ(exit.status, 0) << exit.output;
    said.push_back(exit.output);
  }
  return said;
}

using Little = std::tuple<const char*, const char*>;

class TooLittleMemory : public testing::TestWithParam<Little> {};

// The call may succeed or fail.
TEST_P(TooLittleMemory, EndsACallAndNoRank) {
  const auto& [transport, operation] = GetParam();
  call_with_little(operation, {{"XYLEM_TRANSPORT", transport}});
}

INSTANTIATE_TEST_SUITE_P(Of,
                         TooLittleMemory,
                         testing::Combine(testing::Values("shm", "tcp"), kCalls),
                         [](const testing::TestParamInfo<Little>& row) {
                           return std::string(std::get<1>(row.param)) + "_" +
                                  std::get<0>(row.param);
                         });

// With this algorithm, rank 1 of 3 needs scratch of twice its input. The other ranks need no
// scratch.
TEST(TooLittleScratch, IsSaidOnAllRanksNamingTheOneThatLacksIt) {
  const auto said = call_with_little(
      "all_reduce", {{"XYLEM_TRANSPORT", "tcp"}, {"XYLEM_ALGORITHM", "all_reduce=rabenseifner"}});
  for (const std::string& each : said) {
    EXPECT_NE(each.find("exhausted: rank 1 cannot take part in call "), std::string::npos) << each;
    EXPECT_NE(each.find("no memory for "), std::string::npos) << each;
  }
}

}  // namespace
}  // namespace xylem::test
