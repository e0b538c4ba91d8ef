// SPDX-License-Identifier: Apache-2.0
//
// Calls that devices carry out without the CPU (Communicator::bind()). CUDA_DRIVER names the
// driver. Several ranks share a device.
#include "conformance/run_case.h"
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace xylem::test {
namespace {

class EveryMappedPlanner : public testing::TestWithParam<collectives::Planner> {
 protected:
  /// With `scratch_bytes` of 1 KiB, calls run in several rounds.
  static void run(std::uint64_t scratch_bytes) {
    const auto& planner = GetParam();
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      if (kHasSanitizer && ranks != 3) continue;
      const auto cases = sample(planner.collective, ranks, kHasSanitizer ? 8 : 24);
      CudaRanks devices(ranks);
      devices.set_mesh_scratch(scratch_bytes);
      const std::string algorithm =
          std::string(name(planner.collective)) + "=" + std::string(planner.name);
      run_ranks(devices.options({{"XYLEM_ALGORITHM", algorithm}}), [&](const Communicator& world) {
        const std::uint32_t rank = world.rank();
        ASSERT_EQ(value_of(world.bind(devices.kind(rank))), Binding::mesh);
        const auto on_stream = world.on({devices.memory(rank).stream(), devices.kind(rank)});
        const BuffersOnDevice there{devices.memory(rank), devices.kind(rank)};
        for (const auto& one : cases) {
          ASSERT_EQ(run_case(on_stream, one, &there), "")
              << planner.name << ", " << ranks << " ranks";
        }
        EXPECT_TRUE(world.barrier().wait());
      });
      if (HasFailure()) return;
    }
  }
};

TEST_P(EveryMappedPlanner, IsRight) { run(std::uint64_t{16} << 20); }
TEST_P(EveryMappedPlanner, IsRightInRounds) { run(1 << 10); }

std::string label(const testing::TestParamInfo<collectives::Planner>& tested) {
  return std::string(name(tested.param.collective)) + "_" + std::string(tested.param.name);
}

INSTANTIATE_TEST_SUITE_P(Planners,
                         EveryMappedPlanner,
                         testing::ValuesIn(collectives::mapped_planners().begin(),
                                           collectives::mapped_planners().end()),
                         label);
INSTANTIATE_TEST_SUITE_P(DirectPlanners,
                         EveryMappedPlanner,
                         testing::ValuesIn(collectives::mapped_direct_planners().begin(),
                                           collectives::mapped_direct_planners().end()),
                         label);

}  // namespace
}  // namespace xylem::test
