// SPDX-License-Identifier: Apache-2.0
//
// Compares a topology with another one, and with the output of nvidia-smi on the same machine.
#include "unit/topology_fixture.h"
#include "xylem/topology/compare.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace xylem::topology::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// Each difference as "ROW COLUMN: THERE, HERE".
std::vector<std::string> differences(const Topology& topology, const std::string& text) {
  const auto found = compare_matrix(topology, text, "smi.txt");
  EXPECT_TRUE(found.is_ok()) << found.status().to_string();
  std::vector<std::string> lines;
  if (!found) return lines;
  for (const auto& [row, column, there, here] : *found) {
    lines.push_back(row + " " + column + ": " + there + ", " + here);
  }
  return lines;
}

TEST(Compare, OfAMachineWithItselfFindsNothing) {
  for (const char* const file : kGoldenMachines) {
    const Topology machine = golden(file);
    EXPECT_THAT(diff(machine, machine), IsEmpty()) << file;
    if (machine.gpus().empty()) continue;  // A matrix needs GPUs.
    EXPECT_THAT(differences(machine, to_matrix(machine)), IsEmpty()) << file;
  }
}

TEST(Diff, NamesWhatIsOtherwiseAndWhatOneLacks) {
  const Topology one = golden("nccl_dump.xml");
  Machine other = one.machine();
  std::swap(other.nics[0].name, other.nics[2].name);
  other.gpus[3].pci.numa = {0};
  other.gpus[0].pci.uplink = pcie_rate(32, 8);
  other.links.pop_back();
  const auto topology = value_of(Topology::create(other));
  EXPECT_THAT(
      diff(one, topology),
      ElementsAre(
          TopologyDifference{"GPU at 0000:04:00.0", "link", "PCIe gen 5 x16, 63.02 GB/s",
                             "PCIe gen 5 x8, 31.51 GB/s"},
          TopologyDifference{"GPU at 0000:91:00.0", "NUMA node", "1", "0"},
          TopologyDifference{"GPU at 0000:91:00.0", "near CPUs", "4-7,12-15", "0-3,8-11"},
          TopologyDifference{"NIC at 0000:06:00.0", "name", "mlx5_0", "mlx5_2"},
          TopologyDifference{"NIC at 0000:83:00.0", "name", "mlx5_2", "mlx5_0"},
          TopologyDifference{"nvlink from 0000:91:00.0 to 0000:c2:00.0", "", "here", "absent"}));
}

/// Each difference as "THING: FACT A, B".
std::vector<std::string> lines_of(const Topology& one, const Topology& other) {
  std::vector<std::string> lines;
  for (const auto& [thing, fact, a, b] : diff(one, other)) {
    lines.push_back(thing + ": " + fact + " " + a + ", " + b);
  }
  return lines;
}

TEST(Diff, NamesEachDeviceNearOtherCpus) {
  const std::string text = file_text(golden_path("nccl_dump.xml"));
  const Topology one = golden("nccl_dump.xml");
  const auto other = value_of(read_nccl_xml(replaced(text, "f0f0", "f070"), "other.xml"));
  EXPECT_THAT(lines_of(one, other),
              IsSupersetOf({"NUMA node 1: CPUs 4-7,12-15, 4-6,12-15",
                            "GPU at 0000:82:00.0: near CPUs 4-7,12-15, 4-6,12-15",
                            "GPU at 0000:91:00.0: near CPUs 4-7,12-15, 4-6,12-15",
                            "NIC at 0000:83:00.0: near CPUs 4-7,12-15, 4-6,12-15"}));
  EXPECT_THAT(lines_of(one, other), Each(HasSubstr("CPUs 4-7,12-15, 4-6,12-15")))
      << "what is near NUMA node 0 does not differ";
}

TEST(Diff, SeesANumaNodeWithoutCpus) {
  const Topology one = golden("nccl_dump.xml");
  Machine other = one.machine();
  other.numa_nodes[1].cpus = {};
  EXPECT_THAT(lines_of(one, value_of(Topology::create(other))),
              IsSupersetOf({"NUMA node 1: CPUs 4-7,12-15, none",
                            "GPU at 0000:82:00.0: near CPUs 4-7,12-15, none"}));
  // This source states no CPUs at all, so nothing can be compared with it.
  other.numa_nodes[0].cpus = {};
  EXPECT_THAT(lines_of(one, value_of(Topology::create(other))), IsEmpty());
}

TEST(Diff, ComparesPlacesOfSeveralNumaNodes) {
  const Topology four = described("2 packages, 2 numa/package, 1 gpu/numa");
  Machine machine = four.machine();
  const auto with = [&](Locality numa) {
    machine.gpus[0].pci.numa = std::move(numa);
    return value_of(Topology::create(machine));
  };
  const Topology first = with({0, 1});
  const std::string gpu = "GPU at " + machine.gpus[0].pci.address.to_string();
  const auto cpus = [&](std::size_t a, std::size_t b) {
    CpuSet both = machine.numa_nodes[a].cpus;
    for (const auto& range : machine.numa_nodes[b].cpus.ranges()) both.add(range.first, range.last);
    return both.to_string();
  };
  EXPECT_THAT(lines_of(first, with({2, 3})),
              UnorderedElementsAre(gpu + ": NUMA node one of 0, 1, one of 2, 3",
                                   gpu + ": near CPUs " + cpus(0, 1) + ", " + cpus(2, 3)));
  EXPECT_THAT(lines_of(first, with({0, 1})), IsEmpty());
  EXPECT_THAT(lines_of(first, with({0, 1, 2, 3})),
              ElementsAre(gpu + ": NUMA node one of 0, 1, unknown"))
      << "the CPUs near a device of unknown place are unknown";
}

// Devices refer to a NUMA node by its position in the list, which another NUMA node may change.
TEST(Diff, IgnoresThePositionsOfNumaNodes) {
  Machine machine = golden("nccl_dump.xml").machine();
  machine.numa_nodes[1].os_index = 8;
  const Topology one = value_of(Topology::create(machine));
  NumaNode memory;  // Of a GPU, so it has no CPUs.
  memory.os_index = 4;
  machine.numa_nodes.insert(machine.numa_nodes.begin() + 1, memory);
  const auto renumber = [](Locality& numa) {
    for (std::uint32_t& node : numa) node = node == 1 ? 2 : node;
  };
  for (HostBridge& bridge : machine.host_bridges) renumber(bridge.numa);
  for (Bridge& bridge : machine.bridges) renumber(bridge.pci.numa);
  for (Gpu& gpu : machine.gpus) renumber(gpu.pci.numa);
  for (Nic& nic : machine.nics) renumber(nic.pci.numa);
  for (NvSwitch& nvswitch : machine.nvswitches) renumber(nvswitch.pci.numa);
  EXPECT_THAT(lines_of(one, value_of(Topology::create(machine))),
              ElementsAre("NUMA node 4:  absent, here"));
}

TEST(Diff, SeesTheLinkOfABridgeThatBothShow) {
  const Topology one = golden("nccl_dump.xml");
  Machine other = one.machine();
  other.bridges[0].pci.uplink = pcie_rate(16, 8);
  const auto found = diff(one, value_of(Topology::create(other)));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].thing, "bridge at " + other.bridges[0].pci.address.to_string());
  EXPECT_EQ(found[0].fact, "link");
  other.bridges[0].pci.address.device ^= 1;
  for (const auto& difference : diff(one, value_of(Topology::create(other)))) {
    EXPECT_EQ(difference.fact, "below") << difference.thing << ": a bridge that one lacks";
  }
}

TEST(CompareMatrix, NamesTheCellThatDiffers) {
  const Topology dump = golden("nccl_dump.xml");
  const std::string changed = replaced(to_matrix(dump), "PIX \t4-7,12-15   \t1", "NODE\t4-7\t0");
  EXPECT_THAT(differences(dump, changed),
              ElementsAre("GPU2 mlx5_2: NODE, PIX", "GPU2 CPU Affinity: 4-7, 4-7,12-15",
                          "GPU2 NUMA Affinity: 0, 1"));
}

TEST(CompareMatrix, MatchesNicsByNameInWhateverOrder) {
  const Topology dump = golden("nccl_dump.xml");
  const std::string headed =
      "\tmlx5_2\tGPU0\tmlx5_0\n"
      "GPU0\tSYS\tX\tPXB\n"
      "mlx5_2\tX\tSYS\tSYS\n";
  const auto found = differences(dump, headed);
  EXPECT_THAT(found, ElementsAre("GPU1 GPU1: absent, X", "GPU2 GPU2: absent, X",
                                 "GPU3 GPU3: absent, X", "mlx5_1 mlx5_1: absent, X"));
}

TEST(CompareMatrix, SaysWhichDevicesOnlyOneSideHas) {
  const Topology azure = golden("nccl_template.xml");
  const auto found = differences(azure, "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tSYS\n");
  EXPECT_THAT(found, ElementsAre("GPU2 GPU2: X, absent"));
}

TEST(CompareMatrix, LeavesOutNicsThatNobodyNames) {
  const Topology dump = golden("nccl_dump.xml");
  const std::string text = to_matrix(dump);
  const std::string bare = text.substr(0, text.find("NIC Legend"));
  EXPECT_THAT(differences(dump, replaced(bare, "PXB", "SYS")), IsEmpty());
}

TEST(CompareMatrix, TakesAMatrixWithoutNvlinkForPcieAlone) {
  const Topology dump = golden("nccl_dump.xml");
  EXPECT_THAT(differences(dump,
                          "\tGPU0\tGPU1\tGPU2\tGPU3\n"
                          "GPU0\tX\tPHB\tSYS\tSYS\n"
                          "GPU2\tSYS\tSYS\tX\tPHB\n"),
              IsEmpty());
}

TEST(CompareMatrix, ReadsWhatTerminalsAndPeopleMakeOfIt) {
  const Topology azure = golden("nccl_template.xml");
  const std::string copied =
      "# nvidia-smi topo -m on host7\n"
      "Some words before it\n"
      "        \x1b[4mGPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity\x1b[0m\r\n"
      "GPU0     X      PIX     PIX     0-15            0\r\n"
      "GPU1    PIX      X      PHB     0-15            0\r\n"
      "\r\n"
      "Legend:\r\n"
      "  X    = Self\r\n"
      "  NIC0: 0101:00:00.0\r\n";
  EXPECT_THAT(differences(azure, copied),
              ElementsAre("GPU1 0101:00:00.0: PHB, PIX", "0102:00:00.0 0102:00:00.0: absent, X"));
}

TEST(CompareMatrix, TakesRowsThatAreShorterThanTheHeading) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "\tmlx5_" + std::to_string(i);
  text += "\tGPU0\n";
  for (int i = 0; i < 4000; ++i) text += "mlx5_" + std::to_string(i) + "\n";
  const auto found = value_of(compare_matrix(golden("bare.v2.xml"), text, "smi.txt"));
  EXPECT_EQ(found.size(), 4001U) << "the machine has none of these devices";
}

// With this column, nvidia-smi prints an empty cell before it, and tabs behind the rows of NICs.
TEST(CompareMatrix, ReadsAMatrixWithTheNumaNodesOfGpus) {
  const std::string text =
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
      "GPU0\t X \tNV4\tPIX\t0-7\t0\t\tN/A\n"
      "GPU1\tNV4\t X \tPIX\t0-7\t0\t\tN/A\n"
      "NIC0\tPIX\tPIX\t X \t\t\t\t\n";
  const Topology machine = value_of(read_synthetic("1 package, 2 gpus, 1 nic/gpu", "test"));
  EXPECT_THAT(differences(machine, text), Contains(StartsWith("GPU0 GPU1: NV4, ")));
  EXPECT_THAT(differences(machine, text), Not(Contains(HasSubstr("N/A,"))));
}

TEST(CompareMatrix, RefusesWhatIsNone) {
  const Topology azure = golden("nccl_template.xml");
  const auto message = [&](const std::string& text) {
    const auto found = compare_matrix(azure, text, "smi.txt");
    EXPECT_EQ(found.code(), Code::invalid_argument);
    return std::string(found.status().message());
  };
  EXPECT_THAT(message("hello\n"), HasSubstr("smi.txt: no matrix"));
  EXPECT_THAT(message(""), HasSubstr("no matrix"));
  EXPECT_THAT(message("\tGPU0\tGPU0\n"), HasSubstr("smi.txt:1: GPU0 is here twice"));
  EXPECT_THAT(message("\tGPU0\nGPU0\tX\tX\tX\n"), HasSubstr("smi.txt:2: GPU0 has 3 cells below 1"));
}

}  // namespace
}  // namespace xylem::topology::test
