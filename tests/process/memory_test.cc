// SPDX-License-Identifier: Apache-2.0
//
// Resident memory stays within 64 MiB of the buffers, however late a rank comes.
#include "support/subprocess.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace xylem::test {
namespace {

using Case = std::tuple<const char*, const char*, std::uint32_t>;

class MemoryOfALateRank : public testing::TestWithParam<Case> {};

TEST_P(MemoryOfALateRank, IsBounded) {
  const auto& [transport, operation, size] = GetParam();
  const PrivateDirectory directory;
  // Each message is a call, and a switch between ranks.
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

}  // namespace
}  // namespace xylem::test
