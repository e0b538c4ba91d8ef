// SPDX-License-Identifier: Apache-2.0
//
// What discovery learns from NVIDIA's driver. A fake of its libraries (fakes/nvidia_driver.cc)
// plays the driver.
#include "unit/topology_fixture.h"
#include "xylem/topology/discover.h"
#include "xylem/topology/writers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;

class NvidiaDriver : public testing::Test {
 protected:
  NvidiaDriver() {
    std::string name = testing::TempDir() + "/xylem-driver-XXXXXX";
    const int file = mkstemp(name.data());
    EXPECT_GE(file, 0);
    close(file);
    path_ = name;
  }
  ~NvidiaDriver() override {
    unsetenv("FAKE_NVIDIA_DRIVER");
    std::filesystem::remove(path_);
  }
  NvidiaDriver(const NvidiaDriver&) = delete;
  NvidiaDriver& operator=(const NvidiaDriver&) = delete;

  /// Adds what a driver with these GPUs reports to `machine`. The result must be valid.
  Machine tell(Machine machine, const std::string& gpus, bool by_cuda = false) {
    std::ofstream(path_) << gpus;
    setenv("FAKE_NVIDIA_DRIVER", path_.c_str(), 1);
    return ask(std::move(machine), by_cuda);
  }

  static Machine ask(Machine machine, bool by_cuda = false) {
    DiscoverOptions options;
    options.nvml = by_cuda ? "" : XYLEM_FAKE_NVIDIA_DRIVER;
    options.cuda = by_cuda ? XYLEM_FAKE_NVIDIA_DRIVER : "";
    add_nvidia_facts(machine, options);
    const auto topology = Topology::create(machine);
    EXPECT_TRUE(topology.is_ok()) << topology.status().to_string();
    if (topology) {
      const auto back = read_json(to_json(*topology), "json");
      EXPECT_TRUE(back && *back == *topology) << back.status().to_string();
    }
    return machine;
  }

 private:
  std::string path_;
};

/// A machine with GPUs at 0000:02:00.0 and 0000:03:00.0.
Machine two_gpus() {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(2, {NodeKind::host_bridge, 0}, 16);
  machine.gpus.emplace_back().pci = function(3, {NodeKind::host_bridge, 0}, 16);
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
  before.nvswitches.emplace_back().pci = function(7, {NodeKind::host_bridge, 0}, 1);
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
  before.nvswitches.emplace_back().pci = function(7, {NodeKind::host_bridge, 0}, 1);
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

}  // namespace
}  // namespace xylem::topology::test
