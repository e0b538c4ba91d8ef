// SPDX-License-Identifier: Apache-2.0
//
// Machines that are described in one line.
#include "unit/topology_fixture.h"
#include "xylem/topology/assignment.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

namespace xylem::topology::test {
namespace {

using testing::Each;
using testing::ElementsAre;
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
  const auto topology = value_of(read_file(golden_path("described.txt")));
  EXPECT_THAT(topology.gpus(), SizeIs(4));
  EXPECT_EQ(topology.gpus()[0].pci.uplink, pcie_rate(16, 8));
}

TEST(Synthetic, RefusesAndNamesTheClauseAndTheRule) {
  const std::pair<std::string, const char*> refused[] = {
      {" , ", "it is empty"},
      {"gpus", "\"gpus\": neither a number"},
      {"8 tpus", "neither a number"},
      {"8 gpus/rack", "not counted for each of that"},
      {"2 packages/gpu", "not counted for each of that"},
      {"8 gpus fast", "too many words"},
      {"0 packages", "at least one"},
      {"2 hosts, 8 gpus", "a topology is one host"},
      {"2 gpus/switch", "say \"4 switches\""},
      {"1 nic 400 GB/s", "such as 400 Gb/s"},
      {"1 nic 400 GB/s , 8 gpus", "such as 400 Gb/s"},
      {"4 gpus, 8 gpus", "\"8 gpus\": this kind of clause was given before"},
      {"4 gpus, nvlink pairs, nvswitch", "this kind of clause was given before"},
      {"2 packages, 3 numa/host", "3 NUMA nodes do not divide among 2"},
      {"3 packages, 2 gpus/package, 4 switches", "do not divide"},
      {"2 gpus, pcie gen9", "gen1 to gen7"},
      {"2 gpus, pcie", "does not say which"},
      {"8 gpus, nvlink star", "written as nvlink or xgmi"},
      {"4 gpus, nvlink cube", "a cube has 8 GPUs"},
      {"8 gpus, xgmi cube", "written as nvlink or xgmi"},
      {"4 gpus, nvlink mesh x0", "x1 to x64"},
      {"1 gpu, nvswitch", "links need two GPUs"},
      {"4096 gpus", "more than the 512"},
      {"4294967296 gpus", "neither a number"},
      {"1024 packages, 4096 numa/package", "more than the 1024"},
      {"512 gpus, 8 switches, nvlink mesh", "links"},
      {"300 gpus", "PCI has 256 buses"},
      {std::string(5000, 'x'), "more than 4096 bytes"}};
  for (const auto& [text, rule] : refused) {
    const auto read = read_synthetic(text, "description");
    EXPECT_THAT(read, fails_as(Code::invalid_argument, rule)) << text;
    EXPECT_THAT(read, fails_with("description: ")) << text;
  }
}

}  // namespace
}  // namespace xylem::topology::test
