// SPDX-License-Identifier: Apache-2.0
//
// Paths: every class of path, bandwidths, unknown locations, and the nearest NICs.
#include "unit/topology_fixture.h"

#include <gmock/gmock.h>

#include <utility>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;

PathClass class_of(const Topology& topology, NodeRef a, NodeRef b) {
  return path(topology, a, b).path_class;
}

TEST(Path, EveryRungOfTheLadderIsFound) {
  const Topology ladder = golden("ladder.v2.xml");
  EXPECT_EQ(class_of(ladder, gpu(0), gpu(0)), PathClass::loc);
  EXPECT_EQ(class_of(ladder, gpu(0), gpu(1)), PathClass::nvl);
  EXPECT_EQ(class_of(ladder, gpu(0), nic(1)), PathClass::pix);
  EXPECT_EQ(class_of(ladder, gpu(1), nic(1)), PathClass::pxb);
  EXPECT_EQ(class_of(ladder, gpu(2), nic(2)), PathClass::phb);
  EXPECT_EQ(class_of(ladder, gpu(3), nic(2)), PathClass::node);
  EXPECT_EQ(class_of(ladder, gpu(0), nic(2)), PathClass::sys);
  EXPECT_EQ(class_of(ladder, gpu(0), nic(0)), PathClass::node);
}

TEST(Path, IsTheSameInBothDirections) {
  const Topology ladder = golden("ladder.v2.xml");
  for (std::uint32_t a = 0; a < 4; ++a) {
    for (std::uint32_t b = 0; b < 3; ++b) {
      EXPECT_EQ(path(ladder, gpu(a), nic(b)), path(ladder, nic(b), gpu(a))) << a << ' ' << b;
    }
  }
}

TEST(Path, PcieViewLeavesNvlinkOut) {
  const Topology ladder = golden("ladder.v2.xml");
  const Path path = pci_path(ladder, gpu(0), gpu(1));
  EXPECT_EQ(path.path_class, PathClass::pxb);
  EXPECT_EQ(path.bridges, 4U) << "one above GPU0, three above GPU1";
}

TEST(Path, BandwidthIsThatOfTheNarrowestLink) {
  const Topology ladder = golden("ladder.v2.xml");
  const Path pix = path(ladder, gpu(0), nic(1));
  ASSERT_TRUE(pix.bandwidth.has_value());
  EXPECT_NEAR(pix.bandwidth->value, 63.015385, 1e-6);
  EXPECT_EQ(pix.origin, Origin::read);
  EXPECT_FALSE(pix.bandwidth_is_bound);
  const Path pxb = path(ladder, gpu(1), nic(1));
  ASSERT_TRUE(pxb.bandwidth.has_value());
  EXPECT_NEAR(pxb.bandwidth->value, 31.507692, 1e-6) << "the inner switch is a generation older";
}

TEST(Path, BandwidthOfAWayThroughThePackageIsOnlyABound) {
  const Topology ladder = golden("ladder.v2.xml");
  EXPECT_FALSE(path(ladder, gpu(2), nic(2)).bandwidth_is_bound);
  EXPECT_TRUE(path(ladder, gpu(3), nic(2)).bandwidth_is_bound);
  EXPECT_TRUE(path(ladder, gpu(0), nic(2)).bandwidth_is_bound);
}

TEST(Path, UnknownBandwidthIsAbsentAndNotZero) {
  const Topology flat = golden("flat_vm.v2.xml");
  const Path unknown = path(flat, gpu(0), nic(0));
  EXPECT_EQ(unknown.path_class, PathClass::phb);
  EXPECT_EQ(unknown.bandwidth, std::nullopt);
  EXPECT_EQ(unknown.origin, Origin::unknown);
  EXPECT_TRUE(unknown.bandwidth_is_bound);
}

TEST(Path, OneUnknownLinkMakesTheKnownOnesABound) {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(1, kRoot, 0);
  machine.nics.emplace_back().pci = function(2, kRoot, 16);
  const Path path = topology::path(value_of(Topology::create(machine)), gpu(0), nic(0));
  EXPECT_EQ(path.bandwidth, GBps{16});
  EXPECT_TRUE(path.bandwidth_is_bound);
}

TEST(Path, OfDevicesOfUnknownPlaceSaysThatItAssumes) {
  const Topology flat = golden("flat_vm.v2.xml");
  const Path across = path(flat, gpu(2), nic(1));
  EXPECT_EQ(across.path_class, PathClass::node);
  EXPECT_TRUE(across.locality_assumed);
  EXPECT_FALSE(path(flat, gpu(0), nic(1)).locality_assumed)
      << "one host bridge needs no assumption";
}

/// Returns the path between a GPU and a NIC that belong to no PCI tree. Each is near the given NUMA
/// nodes, out of four.
Path between_places(Locality of_gpu, Locality of_nic) {
  Machine machine = plain_machine();
  for (std::uint32_t i = 1; i < 4; ++i) machine.numa_nodes.emplace_back().os_index = i;
  auto& gpu_pci = machine.gpus.emplace_back().pci;
  gpu_pci.numa = std::move(of_gpu);
  machine.nics.emplace_back().pci.numa = std::move(of_nic);
  machine.nics.back().pci.address.bus = 1;
  return path(value_of(Topology::create(machine)), gpu(0), nic(0));
}

TEST(Path, WithoutATreeFollowsFromPlacesWhereTheySuffice) {
  EXPECT_EQ(between_places({1}, {1}).path_class, PathClass::node);
  EXPECT_EQ(between_places({1}, {2}).path_class, PathClass::sys);
  EXPECT_EQ(between_places({0, 1}, {2, 3}).path_class, PathClass::sys) << "two packages";
  EXPECT_EQ(between_places({0, 1}, {0, 1}).path_class, PathClass::unknown);
  EXPECT_EQ(between_places({0}, {0, 1}).path_class, PathClass::unknown);
}

TEST(Path, TwoFunctionsOfACardBelowARootPortArePix) {
  Machine machine = plain_machine();
  machine.bridges.push_back({function(0, kRoot, 8), 1, 1});
  machine.nics.emplace_back().pci = function(1, bridge(0), 8);
  machine.nics.emplace_back().pci = function(1, bridge(0), 8);
  machine.nics.back().pci.address.function = 1;
  const Path path = topology::path(value_of(Topology::create(machine)), nic(0), nic(1));
  EXPECT_EQ(path.path_class, PathClass::pix);
  EXPECT_EQ(path.bridges, 0U);
}

TEST(Path, NvlinkTellsItsCountAndSum) {
  const Topology ladder = golden("ladder.v2.xml");
  const Path pair = path(ladder, gpu(0), gpu(1));
  EXPECT_EQ(pair.kind, LinkKind::nvlink);
  EXPECT_EQ(pair.nvlinks, 4U);
  EXPECT_EQ(pair.bandwidth, GBps{100});

  const Topology switched = golden("nvswitch.v3.xml");
  const Path by_switches = path(switched, gpu(1), gpu(0));
  EXPECT_EQ(by_switches.path_class, PathClass::nvl);
  EXPECT_EQ(by_switches.nvlinks, 6U) << "three to each of two switches";
  EXPECT_EQ(by_switches.bandwidth, GBps{150});
  EXPECT_EQ(class_of(switched, gpu(0), nvswitch(1)), PathClass::nvl);
}

TEST(Path, NvlinkOfUnknownWidthOnOneWayLeavesTheCountUnknown) {
  Machine machine = plain_machine();
  for (std::uint8_t bus : {1, 2}) {
    machine.gpus.emplace_back().pci = function(bus, kRoot, 16);
  }
  machine.nvswitches.push_back({function(3, kRoot, 1)});
  const Rate wide{GBps{50}, Origin::measured, 2, {}};
  const Rate unknown{};
  machine.links = {{gpu(0), gpu(1), LinkKind::nvlink, wide},
                   {gpu(0), nvswitch(0), LinkKind::nvlink, wide},
                   {gpu(1), nvswitch(0), LinkKind::nvlink, unknown}};
  const auto topology = value_of(Topology::create(machine));
  const Path both = path(topology, gpu(0), gpu(1));
  EXPECT_EQ(both.nvlinks, std::nullopt);
  EXPECT_EQ(both.bandwidth, GBps{100});
  EXPECT_TRUE(both.bandwidth_is_bound);
}

TEST(Path, XgmiIsAnNvlPathOfItsOwnKind) {
  const Topology apu = golden("apu_partitions.v2.xml");
  const Path path = topology::path(apu, gpu(0), gpu(1));
  EXPECT_EQ(path.path_class, PathClass::nvl);
  EXPECT_EQ(path.kind, LinkKind::xgmi);
  EXPECT_EQ(path.nvlinks, std::nullopt);
}

TEST(NearestNics, AreThoseOfTheLowestClass) {
  const Topology ladder = golden("ladder.v2.xml");
  EXPECT_EQ(nearest_nics(ladder, 0), (NearestNics{PathClass::pix, {1}}));
  EXPECT_EQ(nearest_nics(ladder, 1), (NearestNics{PathClass::pxb, {1}}));
  EXPECT_EQ(nearest_nics(ladder, 2), (NearestNics{PathClass::phb, {2}}));
  EXPECT_EQ(nearest_nics(ladder, 3), (NearestNics{PathClass::node, {2}}));
}

TEST(NearestNics, WithoutAFabricAnyNicServes) {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(1, kRoot, 16);
  machine.nics.emplace_back().pci = function(2, kRoot, 1);
  EXPECT_THAT(nearest_nics(*Topology::create(machine), 0).nics, ElementsAre(0));
  machine.nics.emplace_back().pci = function(3, kRoot, 16);
  machine.nics.back().fabric = true;
  EXPECT_THAT(nearest_nics(*Topology::create(machine), 0).nics, ElementsAre(1));
}

TEST(NearestNics, CountsBridgesWithinAClassAndListsTies) {
  Machine machine = plain_machine();
  // All devices are below bridge 0. The GPU and NIC0 are below bridge 1, and NIC1 is directly below
  // bridge 0.
  machine.bridges.push_back({function(0, kRoot, 16), 1, 9});
  machine.bridges.push_back({function(1, bridge(0), 16), 2, 3});
  machine.gpus.emplace_back().pci = function(2, bridge(1), 16);
  machine.nics.emplace_back().pci = function(4, bridge(0), 16);
  machine.nics.emplace_back().pci = function(5, bridge(0), 16);
  EXPECT_EQ(nearest_nics(*Topology::create(machine), 0), (NearestNics{PathClass::pix, {0, 1}}));
  machine.nics[1].pci.parent = bridge(1);
  EXPECT_EQ(nearest_nics(*Topology::create(machine), 0), (NearestNics{PathClass::pix, {1}}));
}

TEST(NearestNics, FromAnotherNodeEveryNicIsAsNear) {
  Machine machine = plain_machine();
  machine.numa_nodes.emplace_back().os_index = 1;
  machine.host_bridges.push_back({1, 0, 0xff, {1}});
  machine.bridges.push_back({function(0, kRoot, 16), 1, 9});
  machine.gpus.emplace_back().pci = function(2, {NodeKind::host_bridge, 1}, 16);
  machine.gpus.back().pci.numa = {1};
  machine.nics.emplace_back().pci = function(4, bridge(0), 16);
  machine.nics.emplace_back().pci = function(5, kRoot, 16);
  EXPECT_EQ(nearest_nics(*Topology::create(machine), 0), (NearestNics{PathClass::sys, {0, 1}}));
}

TEST(NearestNics, AreNoneWithoutNics) {
  EXPECT_EQ(nearest_nics(golden("nvswitch.v3.xml"), 0), NearestNics());
}

// Two boards that each have NVSwitches, as hwloc shows a DGX-2.
TEST(Path, GoesAcrossTheNvswitchesOfAHost) {
  Machine machine = plain_machine();
  for (std::uint8_t i = 0; i < 2; ++i) {
    machine.gpus.emplace_back().pci = function(static_cast<std::uint8_t>(1 + i), kRoot, 15.75);
    machine.nvswitches.emplace_back().pci = function(static_cast<std::uint8_t>(8 + i), kRoot, 0);
    machine.links.push_back({gpu(i),
                             nvswitch(i),
                             LinkKind::nvlink,
                             {GBps{150.0 - 50 * i}, Origin::read, 6U - 2 * i, {}}});
  }
  const auto topology = value_of(Topology::create(machine));
  const Path across = path(topology, gpu(0), gpu(1));
  EXPECT_EQ(across.path_class, PathClass::nvl);
  EXPECT_EQ(across.nvlinks, 4U);
  EXPECT_EQ(across.bandwidth, GBps{100});
  EXPECT_TRUE(across.bandwidth_is_bound && across.locality_assumed);
  EXPECT_EQ(path(topology, gpu(1), gpu(0)), across);
}

TEST(Path, NamesGpusWhoseLinksTheSourceDoesNotShow) {
  EXPECT_EQ(gpus_without_their_links(golden("flat_vm.v2.xml")), "GA100 [A100 SXM4 40GB]");
  EXPECT_EQ(gpus_without_their_links(golden("nccl_dump.xml")), std::nullopt) << "has links";
  EXPECT_EQ(gpus_without_their_links(golden("ladder.v2.xml")), std::nullopt) << "cards";
}

}  // namespace
}  // namespace xylem::topology::test
