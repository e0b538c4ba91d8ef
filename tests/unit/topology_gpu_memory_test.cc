// SPDX-License-Identifier: Apache-2.0
//
// The rates at which GPUs access their own memory and host memory, and the sources of these rates.
#include "unit/topology_fixture.h"
#include "xylem/topology/gpu_memory.h"

#include <gmock/gmock.h>

namespace xylem::topology::test {
namespace {

KnownRate rate_of_model(const std::string& model) {
  Gpu gpu;
  gpu.model = model;
  return memory_rate(gpu);
}

TEST(GpuMemory, HasTheRateOfTheDataSheetByTheNamesThatDriversAndDatabasesGive) {
  struct Case {
    const char* model;
    double rate;
  };
  for (const auto& [model, rate] : {
           Case{"NVIDIA H100 80GB HBM3", 3350},
           Case{"NVIDIA H100 PCIe", 2000},
           Case{"NVIDIA H100 NVL", 3900},
           Case{"NVIDIA H200", 4800},
           Case{"NVIDIA B200", 8000},
           Case{"NVIDIA GH200 480GB", 4000},
           Case{"NVIDIA A100-SXM4-40GB", 1555},
           Case{"NVIDIA A100-SXM4-80GB", 2039},
           Case{"NVIDIA A100 80GB PCIe", 1935},
           Case{"NVIDIA A10G", 600},
           Case{"GA102GL [A10G]", 600},
           Case{"NVIDIA L4", 300},
           Case{"NVIDIA L40S", 864},
           Case{"Tesla V100-SXM2-16GB", 900},
           Case{"GV100GL [Tesla V100 SXM2 16GB]", 900},
           Case{"Tesla V100S-PCIE-32GB", 1134},
           Case{"Tesla T4", 320},
           Case{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 1597},
           Case{"NVIDIA GeForce RTX 3090", 936},
       }) {
    const KnownRate known = rate_of_model(model);
    EXPECT_EQ(known.bandwidth.value, rate) << model;
    EXPECT_THAT(known.origin, testing::StartsWith("data sheet of ")) << model;
  }
}

TEST(GpuMemory, IsRatherThatOfTheDriver) {
  Gpu gpu;
  gpu.model = "Tesla T4";
  gpu.memory_rate = {GBps{300}, Origin::derived, {}, {}};
  EXPECT_EQ(memory_rate(gpu), (KnownRate{GBps{300}, "clock and bus width by its driver"}));
  gpu.memory_rate.origin = Origin::measured;
  EXPECT_EQ(memory_rate(gpu).origin, "measured");
}

TEST(GpuMemory, IsAssumedForUnknownModelsAndSaidToBeSo) {
  Gpu gpu;
  gpu.model = "NVIDIA H100000";
  EXPECT_EQ(memory_rate(gpu).origin, "assumed: the model of the GPU is unknown");
  gpu.architecture = "sm_90";
  EXPECT_EQ(memory_rate(gpu),
            (KnownRate{GBps{2000}, "assumed: the least of sm_90 by data sheets"}));
}

TEST(GpuMemory, SharesThePciLinksToTheHost) {
  // Each GPU has a link with 16 lanes of generation 5. All GPUs are below one switch, whose uplink
  // is a link of the same rate.
  const Topology alone = described("2 gpus, 1 nic/gpu");
  const Topology shared = described("4 gpus, 2 switches");
  const double whole = pcie_rate(32, 16).bandwidth->value;
  EXPECT_DOUBLE_EQ(host_rate(alone, 0)->value, whole);
  EXPECT_DOUBLE_EQ(host_rate(shared, 3)->value, whole / 2);
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(2, kRoot, 16);
  machine.gpus.front().pci.uplink = {};
  EXPECT_FALSE(host_rate(*Topology::create(machine), 0).has_value());
}

}  // namespace
}  // namespace xylem::topology::test
