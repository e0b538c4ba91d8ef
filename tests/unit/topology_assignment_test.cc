// SPDX-License-Identifier: Apache-2.0
//
// The assignment of NICs to GPUs. Each machine tests one claim.
#include "unit/topology_fixture.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace xylem::topology::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A host with this number of switches. Below each switch, there are this number of GPUs and NICs.
Topology host(std::uint32_t switches, std::uint32_t gpus, std::uint32_t nics) {
  Machine machine = plain_machine();
  std::uint8_t bus = 1;
  for (std::uint32_t i = 0; i < switches; ++i) {
    Bridge& bridge = machine.bridges.emplace_back();
    bridge.pci = function(bus++, kRoot, 31.5);
    bridge.is_switch = true;
    const NodeRef above{NodeKind::bridge, i};
    for (std::uint32_t g = 0; g < gpus; ++g) {
      machine.gpus.emplace_back().pci = function(bus++, above, 31.5);
    }
    for (std::uint32_t n = 0; n < nics; ++n) {
      Nic& nic = machine.nics.emplace_back();
      nic.pci = function(bus++, above, 31.5);
      nic.fabric = true;
      nic.name = "mlx5_" + std::to_string(machine.nics.size() - 1);
      nic.ports.push_back({nic.name, 1, PortState::active, LinkLayer::infiniband, GBps{25}});
    }
  }
  return value_of(Topology::create(machine));
}

std::vector<std::uint32_t> firsts(const NicAssignment& assignment) {
  std::vector<std::uint32_t> nics;
  for (const GpuNics& gpu : assignment.gpus)
    nics.push_back(gpu.nics.empty() ? 99 : gpu.nics.front());
  return nics;
}

TEST(AssignNics, GivesEachGpuItsOwnWhereThereIsOne) {
  const auto assignment = assign_nics(host(4, 1, 1));
  EXPECT_THAT(firsts(assignment), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(assignment.loads, Each(1));
  EXPECT_THAT(assignment.rails, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(assignment.gpus[2].reason, "PIX to mlx5_2");
}

TEST(AssignNics, SharesTwoBetweenTwo) {
  const auto assignment = assign_nics(host(2, 2, 2));
  EXPECT_THAT(firsts(assignment), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(assignment.gpus[0].nics, ElementsAre(0))
      << "only one NIC, since the other GPU would have none";
}

TEST(AssignNics, GivesAGpuAllThatNobodyElseIsNear) {
  const auto assignment = assign_nics(host(2, 1, 4));
  EXPECT_THAT(assignment.gpus[0].nics, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(assignment.gpus[1].nics, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(assignment.rails, ElementsAre(0, 4, 1, 5, 2, 6, 3, 7)) << "rail 0 of each GPU first";
}

TEST(AssignNics, SpreadsManyOverFewWithinOne) {
  for (const std::uint32_t gpus : {3U, 4U, 5U, 7U, 8U}) {
    const auto assignment = assign_nics(host(1, gpus, 3));
    const auto [least, most] = std::ranges::minmax(assignment.loads);
    EXPECT_LE(most - least, 1U) << gpus;
  }
}

TEST(AssignNics, SaysWhoShares) {
  const auto assignment = assign_nics(host(1, 3, 1));
  EXPECT_EQ(assignment.gpus[0].reason, "PIX to mlx5_0, shared with GPU1 and GPU2");
}

// GPU0 is below the switch of both NICs. GPU1 is equally far from both.
TEST(AssignNics, TakesTheNearestOnlyThoughOthersAreFree) {
  Machine machine = host(2, 1, 1).machine();
  machine.nics[1].pci.parent = machine.nics[0].pci.parent;
  const auto shared = value_of(Topology::create(machine));
  const auto assignment = assign_nics(shared);
  EXPECT_THAT(assignment.loads, ElementsAre(1, 1));
  EXPECT_EQ(assignment.gpus[0].path_class, PathClass::pix);
  EXPECT_EQ(assignment.gpus[1].path_class, PathClass::phb);
}

// GPU0 is attached to the host bridge, equally far from both NICs. GPU1 is below the switch of the
// first NIC.
TEST(AssignNics, MovesAnEarlierGpuToMakeRoom) {
  Machine machine = host(2, 1, 1).machine();
  machine.gpus[0].pci.parent = kRoot;
  machine.gpus[1].pci.parent = machine.nics[0].pci.parent;
  const auto topology = value_of(Topology::create(machine));
  const auto assignment = assign_nics(topology);
  EXPECT_THAT(firsts(assignment), ElementsAre(1, 0));
  EXPECT_THAT(assignment.loads, ElementsAre(1, 1));
  EXPECT_THAT(assignment.rails, ElementsAre(1, 0));
}

TEST(AssignNics, PassesOverNicsThatAreDownOrSlow) {
  Machine machine = host(2, 1, 2).machine();
  machine.nics[0].ports.front().state = PortState::down;
  machine.nics[2].ports.front().rate = GBps{3.125};
  const auto topology = value_of(Topology::create(machine));
  const auto assignment = assign_nics(topology);
  EXPECT_THAT(firsts(assignment), ElementsAre(1, 3));
  EXPECT_EQ(assignment.uses[0], NicUse::down);
  EXPECT_EQ(assignment.uses[2], NicUse::slow);
  EXPECT_THAT(assignment.rails, ElementsAre(1, 3));
}

TEST(Explain, SaysWhomANicServesOrWhyNobody) {
  Machine machine = host(1, 2, 3).machine();
  machine.nics[1].ports.front().state = PortState::down;
  machine.nics[2].fabric = false;
  const auto topology = value_of(Topology::create(machine));
  EXPECT_THAT(explain(topology, nic(0)), HasSubstr("rail 0, serves GPU0, GPU1"));
  EXPECT_THAT(explain(topology, nic(1)), HasSubstr("serves no GPU: it is down"));
  EXPECT_THAT(explain(topology, nic(2)), HasSubstr("serves no GPU: it has no verbs"));
  EXPECT_THAT(explain(topology, gpu(0)), HasSubstr("mlx5_1 is down"));
  const Topology office = value_of(read_synthetic("1 package, 1 nic", "test"));
  EXPECT_THAT(explain(office, nic(0)), HasSubstr("serves no GPU: this host has none"));
}

TEST(Explain, TellsNvlinkFromPcieAndSaysWhatIsNotKnown) {
  const Topology dump = golden("nccl_dump.xml");
  const std::string linked = explain(dump, gpu(0), gpu(3));
  EXPECT_THAT(linked, HasSubstr("path: NV18\n  bandwidth: 450 GB/s (derived)"));
  EXPECT_THAT(linked, HasSubstr("over PCIe alone: SYS"));
  EXPECT_THAT(explain(dump, gpu(1), nic(0)), HasSubstr("assumed: "));
  const Topology mesh = golden("rccl_mesh.xml");
  EXPECT_THAT(explain(mesh, nic(0)), HasSubstr("eth0, not on PCI, place unknown"));
}

TEST(FindDevice, KnowsNumbersNamesAndAddresses) {
  const Topology dump = golden("nccl_dump.xml");
  for (const char* name : {"gpu2", "GPU2", "0000:82:00.0"})
    EXPECT_EQ(*find_device(dump, name), gpu(2));
  for (const char* name : {"nic1", "mlx5_1", "0000:06:00.1"})
    EXPECT_EQ(*find_device(dump, name), nic(1));
  EXPECT_EQ(find_device(dump, "0000:00:00.0").code(), Code::invalid_argument);
  EXPECT_THAT(std::string(find_device(golden("bare.v2.xml"), "x\x1b[2J").status().message()),
              HasSubstr("no device \"x?[2J\": this host has neither"));
}

TEST(AssignNics, SaysThatThereIsNone) {
  EXPECT_THAT(assign_nics(host(1, 1, 0)).gpus[0].nics, IsEmpty());
  EXPECT_EQ(assign_nics(host(1, 1, 0)).gpus[0].reason, "this host has no NIC");
  Machine machine = host(1, 1, 1).machine();
  machine.nics[0].ports.front().state = PortState::down;
  EXPECT_THAT(assign_nics(*Topology::create(machine)).gpus[0].reason,
              HasSubstr("up and fast enough"));
}

}  // namespace
}  // namespace xylem::topology::test
