// SPDX-License-Identifier: Apache-2.0
//
// Resident memory stays within 64 MiB of the buffers, however late a rank comes.
#include "support/subprocess.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace xylem::test {
namespace {

class MemoryOfALateRank : public testing::TestWithParam<std::tuple<const char*, std::uint32_t>> {};

TEST_P(MemoryOfALateRank, IsBounded) {
  const auto& [operation, size] = GetParam();
  const PrivateDirectory directory;
  // Each message is a call, and a switch between ranks.
  const std::uint64_t bytes = std::string(operation) == "messages" ? 20 << 20 : 160 << 20;
  auto ranks = start_ranks(directory, size, "memory_rank", {operation, std::to_string(bytes)},
                           {{"XYLEM_TRANSPORT", "shm"}});
  for (Process& rank : ranks) {
    const Exit exit = rank.wait(std::chrono::seconds(60));
    EXPECT_EQ(exit.status, 0) << exit.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls,
                         MemoryOfALateRank,
                         testing::Combine(testing::Values("broadcast",
                                                          "all_reduce",
                                                          "scatter",
                                                          "all_to_all",
                                                          "broadcasts",
                                                          "messages"),
                                          testing::Values(2U, 5U)),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param)) + "_" +
                                  std::to_string(std::get<1>(row.param));
                         });

}  // namespace
}  // namespace xylem::test
