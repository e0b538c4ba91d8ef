// SPDX-License-Identifier: Apache-2.0
//
// A rank is killed at different phases of each operation. Every survivor's wait must end within 2
// seconds, with peer_lost naming the victim.
#include "support/subprocess.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace xylem::test {
namespace {

struct World {
  const char* transport;
  std::uint32_t ranks;
  /// How receivers read the data: from "slots" in shared memory, or directly from the sender's
  /// memory. In the second case they map memory of xylem::allocate() ("allocated"), or read from
  /// the sender's process ("pulled").
  const char* memory = "slots";
};

class Death : public testing::TestWithParam<std::tuple<const char*, World>> {};

TEST_P(Death, SurvivorsLearnWhoWithinTwoSeconds) {
  const auto& [op, world] = GetParam();
  // --gtest_random_seed=N draws other cases.
  const int wanted = GTEST_FLAG_GET(random_seed);
  const std::uint32_t seed = wanted != 0 ? static_cast<std::uint32_t>(wanted) : 20261121;
  std::mt19937 random(seed + static_cast<std::uint32_t>(std::hash<std::string>{}(op)) +
                      world.ranks);
  for (const int phase : {0, 1, 2, 4, 9, 30}) {
    const TemporaryDirectory directory;
    const std::uint32_t victim = random() % world.ranks;
    const std::uint32_t bytes = random() % 2 == 0 ? 64 : 1 << 20;
    const std::vector<std::string> arguments{op,
                                             std::to_string(victim),
                                             std::to_string(random() % 4),
                                             std::to_string(phase),
                                             std::to_string(bytes),
                                             world.memory};
    const bool pulls = std::string(world.memory) == "pulled";
    auto ranks = start_ranks(
        directory, world.ranks, "death_rank", arguments,
        {{"XYLEM_TRANSPORT", world.transport}, {"XYLEM_PULL_FROM", pulls ? "4K" : "never"}});
    for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
      const Exit exit = ranks[rank].wait(std::chrono::seconds(30));
      if (rank == victim) {
        EXPECT_EQ(exit.status, 128 + 9) << exit.output;
      } else {
        EXPECT_EQ(exit.status, 0) << op << " seed " << seed << " rank " << rank << ", victim "
                                  << victim << ", phase " << phase << ", " << bytes
                                  << " bytes: " << exit.output;
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<Death::ParamType>& info) {
  const auto& [op, world] = info.param;
  std::string transport = world.transport;
  std::ranges::replace(transport, '-', '_');
  return std::string(op) + "_" + transport + "_" + world.memory + "_" + std::to_string(world.ranks);
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         Death,
                         testing::Combine(testing::Values("all_reduce",
                                                          "reduce",
                                                          "broadcast",
                                                          "all_gather",
                                                          "all_gather_v",
                                                          "reduce_scatter",
                                                          "reduce_scatter_v",
                                                          "all_to_all",
                                                          "all_to_all_v",
                                                          "gather",
                                                          "scatter",
                                                          "barrier",
                                                          "send_recv"),
                                          testing::Values(World{"shm", 2},
                                                          World{"shm", 5},
                                                          World{"shm", 3, "pulled"},
                                                          World{"shm", 3, "allocated"},
                                                          World{"tcp", 3},
                                                          World{"ucx-tcp", 2})),
                         test_name);

}  // namespace
}  // namespace xylem::test
