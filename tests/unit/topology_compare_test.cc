// SPDX-License-Identifier: Apache-2.0
//
// Compares a topology with the output of nvidia-smi on the same machine.
#include "unit/topology_fixture.h"
#include "xylem/topology/compare.h"
#include "xylem/topology/readers.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

namespace xylem::topology::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

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
          TopologyDifference{"NIC at 0000:06:00.0", "name", "mlx5_0", "mlx5_2"},
          TopologyDifference{"NIC at 0000:83:00.0", "name", "mlx5_2", "mlx5_0"},
          TopologyDifference{"nvlink from 0000:91:00.0 to 0000:c2:00.0", "", "here", "absent"}));
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
