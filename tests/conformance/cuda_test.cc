// SPDX-License-Identifier: Apache-2.0
//
// All calls on buffers of CUDA devices. CUDA_DRIVER names the driver. Several ranks share a device.
#include "conformance/run_case.h"
#include "support/cuda_ranks.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "xylem/collectives/planner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace xylem::test {
namespace {

enum class Ranks {
  on_devices,
  mixed,   ///< Odd ranks use host memory, and no rank states the kind of its memory.
  agreed,  ///< All ranks are known to have their buffers on devices (Binding::same_memory).
};

class OnCuda : public testing::TestWithParam<const collectives::Planner*> {
 protected:
  static void run(Ranks which, std::size_t most_cases) {
    const bool are_mixed = which == Ranks::mixed;
    const auto& planner = *GetParam();
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      if (kHasSanitizer && ranks != 3) continue;
      const auto cases =
          sample(planner.collective, ranks, kHasSanitizer ? most_cases / 3 : most_cases);
      CudaRanks devices(ranks);
      const std::string algorithm =
          std::string(name(planner.collective)) + "=" + std::string(planner.name);
      // Even small messages have several slices.
      run_ranks(
          devices.options({{"XYLEM_ALGORITHM", algorithm},
                           {"XYLEM_SLICE", "1K"},
                           {"XYLEM_DEVICE_SLICE", "2K"},
                           {"XYLEM_WINDOW", "3"}}),
          [&](Runtime& runtime, MemoryHub& /*hub*/) {
            const Communicator world =
                which == Ranks::agreed ? with_same_memory(runtime) : runtime.world();
            const std::uint32_t rank = world.rank();
            const auto on_stream = world.on({devices.memory(rank).stream(), devices.kind(rank)});
            const BuffersOnDevice there{devices.memory(rank),
                                        are_mixed ? kFoundByCall : devices.kind(rank)};
            const bool is_on_device = !are_mixed || rank % 2 == 0;
            for (const auto& one : cases) {
              const std::string wrong =
                  is_on_device ? run_case(on_stream, one, &there) : run_case(world, one);
              ASSERT_EQ(wrong, "") << planner.name;
            }
            EXPECT_TRUE(world.barrier().wait());
          });
      if (HasFailure()) return;
    }
  }
};

TEST_P(OnCuda, IsRight) { run(Ranks::on_devices, 24); }
TEST_P(OnCuda, IsRightBesideRanksOnTheHost) { run(Ranks::mixed, 9); }
TEST_P(OnCuda, IsRightIfTheRanksHaveAgreed) { run(Ranks::agreed, 9); }

INSTANTIATE_TEST_SUITE_P(
    Planners, OnCuda, testing::ValuesIn(all_planners()), [](const auto& tested) {
      return std::string(name(tested.param->collective)) + "_" + std::string(tested.param->name);
    });

}  // namespace
}  // namespace xylem::test
