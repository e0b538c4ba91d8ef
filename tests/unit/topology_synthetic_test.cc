// SPDX-License-Identifier: Apache-2.0
//
// Machines that are described by one line.
#include "unit/topology_fixture.h"
#include "xylem/topology/assignment.h"

#include <gmock/gmock.h>

namespace xylem::topology::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Synthetic, DescribesAServer) {
  const Topology hgx = described("2 packages, 8 gpus/host, 1 nic/gpu 400 Gb/s, nvswitch");
  EXPECT_THAT(hgx.packages(), SizeIs(2));
  EXPECT_THAT(hgx.gpus(), SizeIs(8));
  EXPECT_THAT(hgx.nics(), SizeIs(8));
  EXPECT_EQ(hgx.gpus()[3].pci.numa, Locality{0});
  EXPECT_EQ(hgx.gpus()[4].pci.numa, Locality{1});
  EXPECT_EQ(hgx.nics()[0].ports.front().rate, GBps{50});
  const NicAssignment assignment = assign_nics(hgx);
  EXPECT_THAT(assignment.loads, Each(1));
  EXPECT_EQ(assignment.gpus[5].path_class, PathClass::pix);
  EXPECT_EQ(path(hgx, gpu(0), gpu(7)).bandwidth, GBps{450});
  EXPECT_EQ(path(hgx, gpu(0), gpu(7)).nvlinks, 18U);
}

TEST(Synthetic, PlacesThingsOnTheWholeLadder) {
  const Topology host =
      described("2 packages, 2 numa/package, 1 switch/numa, 2 gpus/switch, 3 nics");
  EXPECT_EQ(path(host, gpu(0), gpu(1)).path_class, PathClass::pix);
  EXPECT_EQ(path(host, gpu(0), gpu(2)).path_class, PathClass::sys);
  const Topology flat = described("6 gpus");
  EXPECT_EQ(path(flat, gpu(0), gpu(5)).path_class, PathClass::phb);
  const Topology switched = described("1 package, 2 switches, 1 gpu/switch");
  EXPECT_EQ(path(switched, gpu(0), gpu(1)).path_class, PathClass::node);
}

TEST(Synthetic, SpreadsWhatDoesNotDivide) {
  const Topology host = described("2 packages, 3 switches, 7 gpus, 5 cores/package");
  std::vector<std::uint32_t> below(3, 0);
  for (const Gpu& each : host.gpus()) ++below[each.pci.parent->index];
  EXPECT_THAT(below, ElementsAre(3, 2, 2));
  EXPECT_EQ(host.packages()[1].cpus.to_string(), "5-9");
}

TEST(Synthetic, LinksGpusInEveryShape) {
  EXPECT_THAT(described("4 gpus, nvlink mesh x3").links(), SizeIs(6));
  EXPECT_THAT(described("5 gpus, xgmi ring").links(), SizeIs(5));
  EXPECT_THAT(described("2 gpus, nvlink ring").links(), SizeIs(1));
  EXPECT_THAT(described("6 gpus, nvlink pairs x2").links(), SizeIs(3));
  EXPECT_THAT(described("8 GPUs, NVLink cube").links(), SizeIs(16));
  EXPECT_EQ(described("4 gpus, xgmi mesh").links()[0].rate.bandwidth, GBps{64});
}

TEST(Synthetic, IsReadFromAFileToo) {
  const auto topology = read_file(golden_path("described.txt"));
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  EXPECT_THAT(topology->gpus(), SizeIs(4));
  EXPECT_EQ(topology->gpus()[0].pci.uplink, pcie_rate(16, 8));
}

struct SyntheticRefusal {
  const char* name;
  std::string text;
  const char* says;
};

class Refuses : public testing::TestWithParam<SyntheticRefusal> {};

TEST_P(Refuses, AndNamesTheClauseAndTheRule) {
  const auto read = read_synthetic(GetParam().text, "description");
  ASSERT_FALSE(read.is_ok());
  EXPECT_EQ(read.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("description: "));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Descriptions,
    Refuses,
    testing::Values(
        SyntheticRefusal{"Nothing", " , ", "it is empty"},
        SyntheticRefusal{"NoNumber", "gpus", "\"gpus\": neither a number"},
        SyntheticRefusal{"UnknownThing", "8 tpus", "neither a number"},
        SyntheticRefusal{"UnknownPlace", "8 gpus/rack", "not counted for each of that"},
        SyntheticRefusal{"WrongPlace", "2 packages/gpu", "not counted for each of that"},
        SyntheticRefusal{"TooManyWords", "8 gpus fast", "too many words"},
        SyntheticRefusal{"NoPackages", "0 packages", "at least one"},
        SyntheticRefusal{"Hosts", "2 hosts, 8 gpus", "a topology is one host"},
        SyntheticRefusal{"ByNoSwitch", "2 gpus/switch", "say \"4 switches\""},
        SyntheticRefusal{"Rate", "1 nic 400 GB/s", "such as 400 Gb/s"},
        SyntheticRefusal{"RateBeforeABlank", "1 nic 400 GB/s , 8 gpus", "such as 400 Gb/s"},
        SyntheticRefusal{"Twice", "4 gpus, 8 gpus",
                         "\"8 gpus\": this kind of clause was given before"},
        SyntheticRefusal{"TwoFabrics", "4 gpus, nvlink pairs, nvswitch",
                         "this kind of clause was given before"},
        SyntheticRefusal{"UnevenNuma", "2 packages, 3 numa/host",
                         "3 NUMA nodes do not divide among 2"},
        SyntheticRefusal{"UnevenSwitches", "3 packages, 2 gpus/package, 4 switches",
                         "do not divide"},
        SyntheticRefusal{"Pcie", "2 gpus, pcie gen9", "gen1 to gen7"},
        SyntheticRefusal{"PcieAlone", "2 gpus, pcie", "does not say which"},
        SyntheticRefusal{"Shape", "8 gpus, nvlink star", "written as nvlink or xgmi"},
        SyntheticRefusal{"CubeOfFour", "4 gpus, nvlink cube", "a cube has 8 GPUs"},
        SyntheticRefusal{"CubeOfAmd", "8 gpus, xgmi cube", "written as nvlink or xgmi"},
        SyntheticRefusal{"NoLinks", "4 gpus, nvlink mesh x0", "x1 to x64"},
        SyntheticRefusal{"OneGpu", "1 gpu, nvswitch", "links need two GPUs"},
        SyntheticRefusal{"ManyGpus", "4096 gpus", "more than the 512"},
        SyntheticRefusal{"Overflow", "4294967296 gpus", "neither a number"},
        SyntheticRefusal{"Product", "1024 packages, 4096 numa/package", "more than the 1024"},
        SyntheticRefusal{"MeshOfAll", "512 gpus, 8 switches, nvlink mesh", "links"},
        SyntheticRefusal{"ManyBelowOne", "300 gpus", "PCI has 256 buses"},
        SyntheticRefusal{"Long", std::string(5000, 'x'), "more than 4096 bytes"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace xylem::topology::test
