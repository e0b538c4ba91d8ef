// SPDX-License-Identifier: Apache-2.0
//
// The facts that discovery reads from NVIDIA's driver. The driver is a fake of its libraries
// (fakes/nvidia_driver.cc).
#include "support/temporary_directory.h"
#include "unit/topology_fixture.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;

class NvidiaDriver : public testing::Test {
 protected:
  void TearDown() override { unsetenv("FAKE_NVIDIA_DRIVER"); }

  /// Makes a driver that has these GPUs.
  void drive(const std::string& gpus) const {
    setenv("FAKE_NVIDIA_DRIVER", directory_.write("gpus", gpus).c_str(), 1);
  }

  /// Adds what a driver with these GPUs reports to `machine`. The result must be valid.
  Machine tell(Machine machine, const std::string& gpus, bool by_cuda = false) const {
    drive(gpus);
    return ask(std::move(machine), by_cuda);
  }

  static Machine ask(Machine machine, bool by_cuda = false) {
    DiscoverOptions options;
    options.nvml = by_cuda ? "" : XYLEM_FAKE_NVIDIA_DRIVER;
    options.cuda = by_cuda ? XYLEM_FAKE_NVIDIA_DRIVER : "";
    add_nvidia_facts(machine, options);
    const Topology topology = value_of(Topology::create(machine));
    EXPECT_EQ(value_of(read_json(to_json(topology), "json")), topology);
    return machine;
  }

 private:
  const xylem::test::TemporaryDirectory directory_;
};

/// A machine with GPUs at 0000:02:00.0 and 0000:03:00.0.
Machine two_gpus() {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(2, kRoot, 16);
  machine.gpus.emplace_back().pci = function(3, kRoot, 16);
  return machine;
}

TEST_F(NvidiaDriver, ThatIsMissingOrDoesNotStartChangesNothing) {
  EXPECT_EQ(ask(two_gpus()), two_gpus());
  EXPECT_EQ(ask(two_gpus(), /*by_cuda=*/true), two_gpus());
  Machine machine = two_gpus();
  DiscoverOptions options;
  options.nvml = options.cuda = "libnone-such.so.1";
  add_nvidia_facts(machine, options);
  // A library that exists, but is not NVIDIA's.
  options.nvml = options.cuda = "libc.so.6";
  add_nvidia_facts(machine, options);
  EXPECT_EQ(machine, two_gpus());
}

TEST_F(NvidiaDriver, TellsModelUuidAndCapability) {
  const Machine machine = tell(two_gpus(),
                               "gpu 00000000:03:00.0 GPU-b 9 0 NVIDIA H100 80GB HBM3\n"
                               "gpu 00000000:02:00.0 GPU-a 12 0 NVIDIA B\n"
                               "gpu 00000000:04:00.0 GPU-c 8 0 lost\n");
  ASSERT_EQ(machine.gpus.size(), 2);
  EXPECT_EQ(machine.gpus[1].model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(machine.gpus[1].uuid, "GPU-b");
  EXPECT_EQ(machine.gpus[1].architecture, "sm_90");
  EXPECT_EQ(machine.gpus[0].architecture, "sm_120");
}

TEST_F(NvidiaDriver, TellsNvLinksBetweenGpus) {
  Machine before = two_gpus();
  // The driver's links replace those of another source.
  before.links.push_back({gpu(0), gpu(1), LinkKind::nvlink, {GBps{7}, Origin::read, 1, {}}});
  const Machine machine = tell(before,
                               "gpu 00000000:02:00.0 GPU-a 8 0 A\n"
                               "link 00000000:03:00.0 0\nlink 00000000:03:00.0 0\ndown\n"
                               "link 00000000:02:00.0 0\n"
                               "link 00000000:03:00.0 0\n"
                               "gpu 00000000:03:00.0 GPU-b 8 0 A\nlink 00000000:02:00.0 0\n");
  Rate rate{GBps{75}, Origin::derived, 3, {}};
  EXPECT_THAT(machine.links, ElementsAre(Link{gpu(0), gpu(1), LinkKind::nvlink, rate}));
}

TEST_F(NvidiaDriver, TellsNvSwitchesAlsoHiddenOnes) {
  std::string gpus;
  for (const char* bus : {"02", "03"}) {
    gpus += std::string("gpu 00000000:") + bus + ":00.0 GPU-" + bus + " 9 0 H\n";
    for (int i = 0; i < 4; ++i) gpus += "link 00000000:07:00.0 2\n";
    for (int i = 0; i < 5; ++i) gpus += "link FFFFFFFF:FF:FF.0 2\n";
  }
  Machine before = two_gpus();
  before.nvswitches.emplace_back().pci = function(7, kRoot, 1);
  const Machine machine = tell(before, gpus);
  ASSERT_EQ(machine.nvswitches.size(), 2);
  EXPECT_EQ(machine.nvswitches[0], before.nvswitches[0]);
  EXPECT_EQ(machine.nvswitches[1].pci.model, "hidden NVSwitch");
  ASSERT_EQ(machine.links.size(), 4);
  EXPECT_EQ(machine.links[0],
            (Link{gpu(0), nvswitch(0), LinkKind::nvlink, {GBps{100}, Origin::derived, 4, {}}}));
  EXPECT_EQ(machine.links[3],
            (Link{gpu(1), nvswitch(1), LinkKind::nvlink, {GBps{125}, Origin::derived, 5, {}}}));
}

TEST_F(NvidiaDriver, KnowsSwitchesByTheirAddressAndLeavesProcessorsOut) {
  Machine before = two_gpus();
  before.nvswitches.emplace_back().pci = function(7, kRoot, 1);
  // This is an old driver that does not report link types; and a link of a POWER host to its
  // processor.
  const Machine machine = tell(before,
                               "gpu 00000000:02:00.0 GPU-a 7 0 V\nlink 00000000:07:00.0 255\n"
                               "link FFFFFFFF:FF:FF.0 1\n"
                               "gpu 00000000:03:00.0 GPU-b 7 0 V\nlink 00000000:07:00.0 255\n");
  EXPECT_EQ(machine.nvswitches.size(), 1);
  ASSERT_EQ(machine.links.size(), 2);
  EXPECT_EQ(machine.links[1].b, nvswitch(0));
}

TEST_F(NvidiaDriver, KeepsKnownLinksWhereItsOwnLeadNowhere) {
  Machine before = two_gpus();
  before.links.push_back({gpu(0), gpu(1), LinkKind::nvlink, {GBps{7}, Origin::read, 1, {}}});
  const Machine machine =
      tell(before, "gpu 00000000:02:00.0 GPU-a 7 0 V\nlink 00000000:99:00.0 0\n");
  EXPECT_EQ(machine.links, before.links);
  // A GPU that was hidden comes before the others. The link must still join the same two GPUs.
  const Machine shifted = tell(before, "gpu 00000000:01:00.0 GPU-c 7 0 V\n");
  ASSERT_EQ(shifted.gpus.size(), 3);
  EXPECT_EQ(shifted.links[0].a, gpu(1));
  EXPECT_EQ(shifted.links[0].b, gpu(2));
}

TEST_F(NvidiaDriver, IsNotBelievedWhatNoMachineHas) {
  std::string gpus;
  for (int i = 0; i < 300; ++i) {
    if (i % 15 == 0) gpus += fmt::format("gpu 00000000:{:02x}:00.0 GPU-{} 9 0 H\n", i / 15, i);
    gpus += fmt::format("link 000000{:02x}:{:02x}:01.0 2\n", i / 200, i % 200);
  }
  EXPECT_EQ(tell(two_gpus(), gpus), two_gpus());
}

TEST_F(NvidiaDriver, TellsInstancesOfADividedGpu) {
  const Machine machine = tell(two_gpus(),
                               "gpu 00000000:02:00.0 GPU-a 8 0 A\n"
                               "mig MIG-1 A MIG 3g.20gb\nmig MIG-2 A MIG 4g.20gb\n"
                               "gpu 00000000:03:00.0 GPU-b 8 0 A\nmig MIG-3 A MIG 7g.40gb\n");
  EXPECT_THAT(machine.gpus[0].partitions, ElementsAre(Partition{"A MIG 3g.20gb", "MIG-1"},
                                                      Partition{"A MIG 4g.20gb", "MIG-2"}));
  EXPECT_TRUE(machine.gpus[1].partitions.empty());
}

TEST_F(NvidiaDriver, TellsOfGpusWhosePciFunctionsAreHidden) {
  Machine before = plain_machine();
  before.numa_nodes.push_back(before.numa_nodes[0]);
  before.numa_nodes[1].os_index = 1;
  const Machine machine = tell(before,
                               "gpu 00000000:03:00.0 GPU-b 9 0 H\nlink 00000000:02:00.0 0\n"
                               "gpu 00000000:02:00.0 GPU-a 9 0 H\nlink 00000000:03:00.0 0\n");
  ASSERT_EQ(machine.gpus.size(), 2);
  EXPECT_EQ(machine.gpus[0].uuid, "GPU-a");
  EXPECT_EQ(machine.gpus[0].pci.address.to_string(), "0000:02:00.0");
  EXPECT_THAT(machine.gpus[0].pci.numa, ElementsAre(0, 1)) << "the GPU's place is unknown";
  EXPECT_EQ(machine.links.size(), 1);
}

TEST_F(NvidiaDriver, IsAskedThroughCudaWhereThereIsNoNvml) {
  const Machine machine = tell(two_gpus(),
                               "gpu 0000:02:00.0 - 7 5 Tesla T4\n"
                               "gpu 0000:03:00.0 - 7 0 Tesla V100\nlink 00000000:02:00.0 0\n",
                               /*by_cuda=*/true);
  EXPECT_EQ(machine.gpus[0].model, "Tesla T4");
  EXPECT_EQ(machine.gpus[0].architecture, "sm_75");
  EXPECT_EQ(machine.gpus[1].uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_TRUE(machine.links.empty());
}

TEST_F(NvidiaDriver, TellsMemoryAndItsRateFromClockAndBus) {
  const std::string gpus =
      "version 580.65.06 13000\n"
      "gpu 00000000:02:00.0 GPU-a 9 0 NVIDIA H100 80GB HBM3\n"
      "memory 85520809984 2619 5120\n"
      "gpu 00000000:03:00.0 GPU-b 9 0 NVIDIA H100 80GB HBM3\nmemory 0 0 5120\n";
  const Machine machine = tell(two_gpus(), gpus);
  EXPECT_EQ(machine.gpus[0].memory.value, 85520809984);
  EXPECT_NEAR(machine.gpus[0].memory_rate.bandwidth->value, 3352, 1);
  EXPECT_EQ(machine.gpus[0].memory_rate.origin, Origin::derived);
  EXPECT_EQ(machine.gpus[1].memory_rate, Rate()) << "without a clock it stays unknown";
  EXPECT_EQ(machine.nvidia, (topology::NvidiaDriver{"580.65.06", "13.0", ""}));
  // The CUDA driver tells the same as attributes, in kilohertz.
  const Machine by_cuda = tell(two_gpus(),
                               "version 580.65.06 12080\n"
                               "gpu 0000:02:00.0 - 9 0 H100\nmemory 85520809984 0 0\n"
                               "attribute 36 2619000\nattribute 37 5120\n"
                               "attribute 125 1\nattribute 116 1\n"
                               "gpu 0000:03:00.0 - 9 0 H100 MIG 3g.40gb\nmemory 42 0 0\n"
                               "attribute 125 0\nattribute 116 0\nattribute 124 0\n",
                               /*by_cuda=*/true);
  EXPECT_EQ(by_cuda.gpus[0].memory_rate, machine.gpus[0].memory_rate);
  EXPECT_EQ(by_cuda.gpus[0].memory, machine.gpus[0].memory);
  EXPECT_EQ(by_cuda.gpus[0].ipc, true);
  EXPECT_EQ(by_cuda.gpus[0].rdma, true);
  EXPECT_EQ(by_cuda.gpus[1].memory.value, 0) << "of an instance, not of the GPU";
  EXPECT_EQ(by_cuda.gpus[1].ipc, false);
  EXPECT_EQ(by_cuda.gpus[1].rdma, false);
  EXPECT_EQ(by_cuda.nvidia.cuda_version, "12.8");
}

TEST_F(NvidiaDriver, TellsThePcieLinkThatSysfsHides) {
  const std::string gpus =
      "gpu 00000000:02:00.0 GPU-a 9 0 H\npcie 8 16 5\n"
      "gpu 00000000:03:00.0 GPU-b 9 0 H\npcie 8 16 5\n";
  Machine before = two_gpus();
  before.gpus[1].pci.uplink = {};
  const Machine machine = tell(before, gpus);
  EXPECT_EQ(machine.gpus[0].pci.uplink, before.gpus[0].pci.uplink) << "sysfs knows it better";
  EXPECT_EQ(machine.gpus[0].pcie_lanes, 16U);
  EXPECT_EQ(machine.gpus[1].pci.uplink, pcie_rate(32, 8));
  EXPECT_THAT(to_tree(*Topology::create(machine)),
              testing::HasSubstr("x8, 31.51 GB/s (it and its slot support x16)"));
}

TEST_F(NvidiaDriver, TellsWhichPairsReachEachOther) {
  std::string gpus;
  for (const char* bus : {"02", "03", "04"}) {
    gpus += fmt::format("gpu 00000000:{}:00.0 GPU-{} 8 6 A\n", bus, bus);
  }
  const std::string all = gpus + "pair 0 1 0\npair 0 2 1\npair 1 2 4\n";
  const Machine machine = tell(two_gpus(), all);
  EXPECT_THAT(machine.gpu_pairs,
              ElementsAre(GpuPair{0, 1, PeerAccess::yes}, GpuPair{0, 2, PeerAccess::no_by_chipset},
                          GpuPair{1, 2, PeerAccess::disabled}));
  const std::string tree = to_tree(*Topology::create(machine));
  EXPECT_THAT(tree, testing::HasSubstr("peer access possible: GPU0-GPU1\n"));
  EXPECT_THAT(tree,
              testing::HasSubstr("peer access not possible (the chipset does not support it): "
                                 "GPU0-GPU2\n"));
  // The CUDA driver gives no reasons.
  EXPECT_EQ(tell(two_gpus(), all, /*by_cuda=*/true).gpu_pairs[1].access, PeerAccess::no);
  // A pair about which NVML reports nothing is unknown.
  EXPECT_EQ(tell(two_gpus(), gpus + "pair 0 1 6\npair 0 2 0\n").gpu_pairs,
            std::vector(1, GpuPair{0, 2, PeerAccess::yes}));
  // GPUs that were hidden before change the numbers of the others.
  Machine known = machine;
  EXPECT_THAT(tell(known, "gpu 00000000:01:00.0 GPU-z 8 6 A\n").gpu_pairs[0],
              (GpuPair{1, 2, PeerAccess::yes}));
}

TEST_F(NvidiaDriver, AddsWhatOnlyCudaKnowsToWhatNvmlTells) {
  drive(
      "version 580.65.06 13000\ngpu 00000000:02:00.0 GPU-a 9 0 H\nattribute 125 1\n"
      "gpu 00000000:03:00.0 GPU-b 9 0 H\nattribute 125 0\npair 0 1 3\n");
  Machine machine = two_gpus();
  DiscoverOptions options;
  options.nvml = options.cuda = XYLEM_FAKE_NVIDIA_DRIVER;
  add_nvidia_facts(machine, options);
  EXPECT_EQ(machine.gpus[0].uuid, "GPU-a") << "NVML's";
  EXPECT_EQ(machine.gpus[0].ipc, true);
  EXPECT_EQ(machine.gpu_pairs[0].access, PeerAccess::no_by_topology) << "NVML's reason";
  EXPECT_THAT(to_tree(*Topology::create(machine)),
              testing::HasSubstr("processes can open each other's memory (CUDA IPC): not GPU1"));
  machine.gpus[1].ipc.reset();
  EXPECT_THAT(driver_lines(*Topology::create(machine)),
              ElementsAre("NVIDIA's driver 580.65.06, CUDA 13.0",
                          "peer access not possible (the path does not support it): all pairs",
                          "processes can open each other's memory (CUDA IPC): GPU0, unknown of "
                          "others"));
  EXPECT_TRUE(driver_lines(*Topology::create(two_gpus())).empty());
}

TEST_F(NvidiaDriver, SaysWhyALibraryWasNotAskedIfThereAreGpus) {
  Machine machine = two_gpus();
  machine.gpus[0].pci.id.vendor = kVendorNvidia;
  DiscoverOptions options;
  options.nvml = "libnone-such.so.1";
  options.cuda = XYLEM_FAKE_NVIDIA_DRIVER;
  Machine completed = machine;
  add_nvidia_facts(completed, options);
  EXPECT_THAT(completed.nvidia.trouble,
              testing::HasSubstr("does not start (CUDA error 999); libnone-such.so.1 cannot be "
                                 "opened"));
  EXPECT_THAT(to_tree(*Topology::create(completed)),
              testing::HasSubstr("not everything is known: "));
  completed.nvidia = {};
  EXPECT_EQ(completed, machine) << "nothing else changed";
}

TEST_F(NvidiaDriver, IsNotBelievedNumbersThatCannotBe) {
  const std::string gpus =
      "count 4000000000\nfails mig count\n"
      "gpu 00000000:02:00.0 GPU-a -1 -5 A\nmemory 1 4000000000 4000000000\npcie 99 77 99\n"
      "mig MIG-1 A MIG 1g\npair 0 1 -7\nversion 0 -12\n"
      "gpu 00000000:02:00.0 GPU-c 9 9999 A\nmemory 1 1 1\n"
      "pair 0 0 0\n";
  for (const bool by_cuda : {false, true}) {
    const Machine machine = tell(two_gpus(), gpus, by_cuda);
    EXPECT_EQ(machine.gpus.size(), 2);
    EXPECT_EQ(machine.gpus[0].architecture, "");
    EXPECT_EQ(machine.gpus[0].memory_rate, Rate());
    EXPECT_EQ(machine.gpus[0].pcie_lanes, std::nullopt);
    EXPECT_TRUE(machine.gpu_pairs.empty()) << "a GPU and itself are no pair";
    EXPECT_EQ(machine.nvidia.cuda_version, "");
  }
}

TEST_F(NvidiaDriver, LeavesFactsUnknownWhoseFunctionsFail) {
  const std::string gpus =
      "version 580.65.06 13000\n"
      "gpu 00000000:02:00.0 GPU-a 9 0 A\nmemory 1000 2619 5120\npcie 16 16 5\ndown\n"
      "link 00000000:03:00.0 0\ngpu 00000000:03:00.0 GPU-b 9 0 A\npair 0 1 0\n";
  Machine before = two_gpus();
  before.gpus[0].pci.uplink = {};
  const auto without = [&](const char* function) {
    return tell(before, std::string("fails ") + function + "\n" + gpus);
  };
  const Machine all = without("nothing");
  EXPECT_EQ(all.gpus[0].nvlinks_down, 1U);
  EXPECT_EQ(without("nvmlDeviceGetMemoryInfo").gpus[0].memory.value, 0);
  for (const char* function : {"nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMaxClockInfo"}) {
    EXPECT_EQ(without(function).gpus[0].memory_rate, Rate()) << function;
  }
  for (const char* function :
       {"nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkGeneration"}) {
    EXPECT_EQ(without(function).gpus[0].pci.uplink, Rate()) << function;
  }
  EXPECT_EQ(without("nvmlDeviceGetMaxPcieLinkWidth").gpus[0].pcie_lanes, std::nullopt);
  EXPECT_TRUE(without("nvmlDeviceGetP2PStatus").gpu_pairs.empty());
  EXPECT_EQ(without("nvmlSystemGetDriverVersion").nvidia.version, "");
  EXPECT_EQ(without("nvmlSystemGetCudaDriverVersion_v2").nvidia.cuda_version, "");
  for (const char* function : {"nvmlDeviceGetCount_v2", "nvmlDeviceGetPciInfo_v3"}) {
    Machine nothing = without(function);
    nothing.nvidia = {};
    EXPECT_EQ(nothing, before) << function;
  }
}

}  // namespace
}  // namespace xylem::topology::test
