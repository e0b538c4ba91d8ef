// SPDX-License-Identifier: Apache-2.0
//
// The facts that discovery reads from the CUDA driver alone. The driver is the stand-in that also
// runs Xylem's kernels (fakes/cuda_driver).
#include "unit/topology_fixture.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace xylem::topology::test {
namespace {

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override { setenv("FAKE_CUDA_DEVICES", "3", 1); }
  void TearDown() override { unsetenv("FAKE_CUDA_DEVICES"); }
};

TEST_F(CudaDriver, TellsGpusTheirMemoryAndWhoReachesIt) {
  Machine machine = plain_machine();
  DiscoverOptions options;
  options.nvml = "libnone-such.so.1";
  options.cuda = XYLEM_FAKE_CUDA;
  add_nvidia_facts(machine, options);
  ASSERT_EQ(machine.gpus.size(), 3);
  for (const Gpu& gpu : machine.gpus) {
    EXPECT_EQ(gpu.model, "Fake H100");
    EXPECT_EQ(gpu.architecture, "sm_90");
    EXPECT_GT(gpu.memory.value, 0);
    EXPECT_EQ(gpu.memory_rate, Rate()) << "it tells neither clock nor bus";
    EXPECT_EQ(gpu.ipc, true);
  }
  EXPECT_EQ(machine.gpus[2].pci.address.to_string(), "0000:12:00.0");
  EXPECT_EQ(machine.gpu_pairs.size(), 3);
  EXPECT_EQ(machine.gpu_pairs[2], (GpuPair{1, 2, PeerAccess::yes}));
  EXPECT_EQ(machine.nvidia.trouble, "libnone-such.so.1 cannot be opened");
  const auto topology = value_of(Topology::create(machine));
  EXPECT_THAT(to_tree(topology), testing::HasSubstr("peer access possible: all pairs"));
}

}  // namespace
}  // namespace xylem::topology::test
