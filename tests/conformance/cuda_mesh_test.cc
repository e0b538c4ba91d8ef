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

#include <cstddef>
#include <cstdint>
#include <string>

namespace xylem::test {
namespace {

class EveryMappedPlanner : public testing::TestWithParam<collectives::Planner> {
 protected:
  enum class Buffers { are_reached, are_not_reached_at_odd_ranks };

  /// With `staging_bytes` of 1 KiB, calls that use staging memory run in several rounds.
  static void run(std::uint64_t staging_bytes, Buffers buffers) {
    const auto& planner = GetParam();
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      if (kHasSanitizer && ranks != 3) continue;
      const auto cases = sample(planner.collective, ranks, kHasSanitizer ? 8 : 24);
      CudaRanks devices(ranks);
      devices.set_mesh_staging(staging_bytes);
      const std::string algorithm =
          std::string(name(planner.collective)) + "=" + std::string(planner.name);
      run_ranks(devices.options({{"XYLEM_ALGORITHM", algorithm}}), [&](const Communicator& world) {
        const std::uint32_t rank = world.rank();
        ASSERT_EQ(value_of(world.bind(devices.kind(rank))), Binding::mesh);
        const auto on_stream = world.on({devices.memory(rank).stream(), devices.kind(rank)});
        const bool is_managed = buffers == Buffers::are_not_reached_at_odd_ranks && rank % 2 == 1;
        CudaMemory managed(devices.shared_driver(), devices.kind(rank).device, kBytes,
                           CudaMemory::Kind::managed);
        const BuffersOnDevice there{is_managed ? managed : devices.memory(rank),
                                    devices.kind(rank)};
        for (auto one : cases) {
          // Only some ranks make the call in place.
          const bool may_differ = one.collective == collectives::Collective::all_to_all;
          if (may_differ && !one.uneven) one.in_place = rank % 2 == 0;
          ASSERT_EQ(run_case(on_stream, one, &there), "")
              << planner.name << ", " << ranks << " ranks";
        }
        EXPECT_TRUE(world.barrier().wait());
      });
      if (HasFailure()) return;
    }
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
};

TEST_P(EveryMappedPlanner, IsRight) { run(std::uint64_t{16} << 20, Buffers::are_reached); }
TEST_P(EveryMappedPlanner, IsRightInRounds) { run(1 << 10, Buffers::are_reached); }
TEST_P(EveryMappedPlanner, IsRightWithStagingMemory) {
  run(1 << 10, Buffers::are_not_reached_at_odd_ranks);
}

std::string label(const testing::TestParamInfo<collectives::Planner>& tested) {
  return std::string(name(tested.param.collective));
}

INSTANTIATE_TEST_SUITE_P(Planners,
                         EveryMappedPlanner,
                         testing::ValuesIn(collectives::mapped_planners().begin(),
                                           collectives::mapped_planners().end()),
                         label);

}  // namespace
}  // namespace xylem::test
