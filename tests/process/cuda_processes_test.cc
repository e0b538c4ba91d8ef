// SPDX-License-Identifier: Apache-2.0
//
// All calls on device memory, with ranks that are processes, on one host and on two. Ranks share
// devices, and processes open each other's memory by CUDA IPC.
#include "process/hosts.h"
#include "support/sanitizer.h"
#include "support/subprocess.h"
#include "xylem/collectives/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

using Variables = std::map<std::string, std::string>;

/// Slices are so small that even small messages have several.
const Variables kSmallSlices{{"XYLEM_SLICE", "1K"}, {"XYLEM_WINDOW", "3"}, {"XYLEM_LOG", "off"}};
constexpr const char* kNone = "none";

struct World {
  std::uint32_t ranks = 2;
  std::string on_host = kNone;  ///< The rank whose buffers are in host memory.
};

void run(const World& world, std::uint32_t most_cases, const Variables& variables) {
  const TemporaryDirectory directory;
  auto ranks = start_ranks(directory, world.ranks, "cuda_rank",
                           {world.on_host, std::to_string(most_cases)}, variables);
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
    const Exit exit = ranks[rank].wait(seconds(100));
    EXPECT_EQ(exit.status, 0) << exit.output;
    // If there are two ranks, and one uses host memory, no rank opens device memory of the other.
    const bool opens =
        world.on_host == kNone || (world.ranks > 2 && world.on_host != std::to_string(rank));
    if (opens) {
      EXPECT_THAT(exit.output, Not(HasSubstr("opened 0\n")));
    } else {
      EXPECT_THAT(exit.output, HasSubstr("opened 0\n"));
    }
  }
}

class CudaProcesses : public testing::TestWithParam<World> {};

TEST_P(CudaProcesses, AreRightInAllCalls) {
  run(GetParam(), kHasSanitizer ? 40 : 300, kSmallSlices);
}

// Each operation uses each of its algorithms in turn.
TEST_P(CudaProcesses, AreRightWithAllAlgorithms) {
  std::map<collectives::Collective, std::vector<std::string>> algorithms;
  std::size_t most = 0;
  for (const auto& planner : collectives::planners()) {
    auto& known = algorithms[planner.collective];
    known.emplace_back(planner.name);
    most = std::max(most, known.size());
  }
  for (std::size_t turn = 0; turn < most; ++turn) {
    std::string chosen;
    for (const auto& [collective, known] : algorithms) {
      chosen += (chosen.empty() ? "" : ",") + std::string(name(collective)) + "=" +
                known[turn % known.size()];
    }
    Variables variables = kSmallSlices;
    variables["XYLEM_ALGORITHM"] = chosen;
    run(GetParam(), 24, variables);
    if (HasFailure()) FAIL() << chosen;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds,
    CudaProcesses,
    testing::Values(World{2}, World{2, "1"}, World{3}, World{4}, World{4, "1"}, World{5, "0"}),
    [](const auto& tested) {
      const World& world = tested.param;
      return std::to_string(world.ranks) +
             (world.on_host == kNone ? "" : "_without_" + world.on_host);
    });

// Without CUDA IPC, messages in device memory are copied through host memory.
TEST(CudaProcess, AreRightWithoutIpc) {
  const TemporaryDirectory directory;
  Variables variables = kSmallSlices;
  variables["FAKE_CUDA_FAULTS"] = "unsupported=ipc";
  auto ranks = start_ranks(directory, 4, "cuda_rank", {kNone, "40"}, variables);
  for (auto& rank : ranks) {
    const Exit exit = rank.wait(seconds(100));
    EXPECT_EQ(exit.status, 0) << exit.output;
  }
}

// ---- meshes ----

struct MeshOfProcesses {
  std::uint32_t ranks = 2, devices = 2;
};

/// Processes that share a device form a mesh if they use it by MPS.
Variables variables_of(const MeshOfProcesses& mesh) {
  return {{"XYLEM_LOG", "off"},
          {"FAKE_CUDA_DEVICES", std::to_string(mesh.devices)},
          {"FAKE_CUDA_MPS", mesh.devices < mesh.ranks ? "1" : "0"}};
}

class CudaMeshOfProcesses : public testing::TestWithParam<MeshOfProcesses> {
 protected:
  static void run(const std::vector<std::string>& arguments, const Variables& variables) {
    const TemporaryDirectory directory;
    auto ranks = start_ranks(directory, GetParam().ranks, "cuda_mesh_rank", arguments, variables);
    for (auto& rank : ranks) {
      const Exit exit = rank.wait(seconds(100));
      EXPECT_EQ(exit.status, 0) << exit.output;
    }
  }
};

TEST_P(CudaMeshOfProcesses, IsRightInMixedCalls) {
  run({kHasSanitizer ? "60" : "600", "20261130"}, variables_of(GetParam()));
}

TEST_P(CudaMeshOfProcesses, WaitsForNoRankThatOpensMemoryLate) {
  const TemporaryDirectory directory;
  const std::string gate = directory.write("gate", "");
  Variables variables = variables_of(GetParam());
  variables["FAKE_CUDA_OPEN_GATE"] = gate;
  run({"late", gate}, variables);
}

INSTANTIATE_TEST_SUITE_P(Meshes,
                         CudaMeshOfProcesses,
                         testing::Values(MeshOfProcesses{2, 2},
                                         MeshOfProcesses{3, 1},
                                         MeshOfProcesses{4, 2},
                                         MeshOfProcesses{8, 8}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.ranks) + "_on_" +
                                  std::to_string(tested.param.devices);
                         });

// Ranks 0 and 1 are on one host, and ranks 2 and 3 on another.
TEST(CudaProcess, AreRightOnTwoHosts) {
  const Hosts hosts;
  if (!hosts.ok()) GTEST_SKIP() << "this machine makes no network namespaces";
  // The network namespaces belong to this test, so every port in them is free.
  const std::string meeting = "tcp://" + Hosts::address(0) + ":29400";
  std::vector<std::unique_ptr<Command>> ranks;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    Command::Variables variables{{"XYLEM_RANK", std::to_string(rank)},
                                 {"XYLEM_SIZE", "4"},
                                 {"XYLEM_RENDEZVOUS", meeting},
                                 {"XYLEM_TUNING", "off"}};
    variables.insert(variables.end(), kSmallSlices.begin(), kSmallSlices.end());
    ranks.push_back(
        hosts.run(rank / 2, {std::string(XYLEM_TEST_BIN) + "/cuda_rank", kNone, "100"}, variables));
  }
  for (const auto& rank : ranks) {
    const Finished finished = rank->wait(Deadline::after(seconds(100)));
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_THAT(finished.out, Not(HasSubstr("opened 0\n")));
  }
}

}  // namespace
}  // namespace xylem::test
