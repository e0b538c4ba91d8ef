// SPDX-License-Identifier: Apache-2.0
//
// The NUMA nodes and CPUs to which ranks belong, and hosts with their rails.
#include "unit/topology_fixture.h"
#include "xylem/topology/cluster.h"
#include "xylem/topology/placement.h"

#include <gmock/gmock.h>

namespace xylem::topology::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> texts(const Topology& topology, std::uint32_t ranks) {
  std::vector<std::string> result;
  for (const RankPlace& place : place_ranks(topology, ranks)) result.push_back(place.text);
  return result;
}

/// Returns the CPUs of each rank on a machine with one NUMA node and these CPUs.
std::vector<std::string> shares(const char* cpus, std::uint32_t ranks) {
  Machine machine = plain_machine();
  machine.packages[0].cpus = machine.numa_nodes[0].cpus = *CpuSet::parse(cpus);
  std::vector<std::string> result;
  for (const auto& place : place_ranks(*Topology::create(machine), ranks)) {
    result.push_back(place.cpus.to_string());
  }
  return result;
}

TEST(PlaceRanks, GivesEachItsGpuNicsAndAShareOfTheCpusNearby) {
  const Topology server = described("2 packages, 16 cores/package, 2 gpus/package, 1 nic/gpu");
  EXPECT_THAT(
      texts(server, 4),
      ElementsAre("GPU0, rdma0, NUMA node 0, CPUs 0-7", "GPU1, rdma1, NUMA node 0, CPUs 8-15",
                  "GPU2, rdma2, NUMA node 1, CPUs 16-23", "GPU3, rdma3, NUMA node 1, CPUs 24-31"));
}

TEST(PlaceRanks, BeginsAgainWhereRanksAreMoreThanGpus) {
  const Topology server = described("1 package, 4 cores, 2 gpus");
  EXPECT_THAT(texts(server, 3),
              ElementsAre("GPU0, NUMA node 0, CPUs 0", "GPU1, NUMA node 0, CPUs 1",
                          "GPU0, NUMA node 0, CPUs 2-3"));
}

TEST(PlaceRanks, SpreadsRanksOverNodesWithoutGpus) {
  const Topology server = described("2 packages, 4 cores/package, 2 nics/package");
  EXPECT_THAT(
      texts(server, 5),
      ElementsAre("rdma0, rdma1, NUMA node 0, CPUs 0", "rdma1, rdma0, NUMA node 0, CPUs 1",
                  "rdma0, rdma1, NUMA node 0, CPUs 2-3", "rdma2, rdma3, NUMA node 1, CPUs 4-5",
                  "rdma3, rdma2, NUMA node 1, CPUs 6-7"));
  const auto alone = place_ranks(server, 1);
  EXPECT_THAT(alone[0].numa, ElementsAre(0, 1));
  EXPECT_EQ(alone[0].text, "rdma0, rdma1, rdma2, rdma3, NUMA nodes 0 and 1, CPUs 0-7");
}

TEST(PlaceRanks, SharesOutHardwareThreadsWithTheirCores) {
  EXPECT_THAT(shares("0-15,128-143", 3),
              ElementsAre("0-4,128-132", "5-9,133-137", "10-15,138-143"));
}

TEST(PlaceRanks, CutsAcrossRangesThatAreShort) {
  EXPECT_THAT(shares("0,2,4,6-8", 3), ElementsAre("0,2", "4,6", "7-8"));
  // If there are fewer CPUs than ranks, all ranks get all CPUs.
  EXPECT_THAT(shares("0,2,4,6-8", 7), Each("0,2,4,6-8"));
}

TEST(PlaceRanks, LeavesGpuMemoryOutAndSaysWhatIsUnknown) {
  Machine machine = plain_machine();
  machine.numa_nodes.push_back(machine.numa_nodes[0]);
  machine.numa_nodes[1].os_index = 8;
  machine.numa_nodes[1].cpus = {};
  machine.gpus.emplace_back().pci = function(2, kRoot, 16);
  machine.gpus[0].pci.numa = {1};
  EXPECT_THAT(texts(*Topology::create(machine), 1), ElementsAre("GPU0, NUMA node 0, CPUs 0-1"));
  machine.numa_nodes[1].cpus = *CpuSet::parse("2-3");
  machine.gpus[0].pci.numa = {0, 1};
  EXPECT_THAT(texts(*Topology::create(machine), 1),
              ElementsAre("GPU0, NUMA nodes 0 or 8, CPUs 0-3"));
}

TEST(PlaceRanks, KeepsSharesApartWhereOnlySomePlacesAreKnown) {
  Machine machine = plain_machine();
  machine.numa_nodes[0].cpus = machine.packages[0].cpus = *CpuSet::parse("0-3");
  machine.numa_nodes.push_back(machine.numa_nodes[0]);
  machine.numa_nodes[1].os_index = 1;
  machine.numa_nodes[1].cpus = *CpuSet::parse("4-7");
  for (std::uint8_t bus = 2; bus < 4; ++bus) {
    machine.gpus.emplace_back().pci = function(bus, kRoot, 16);
  }
  machine.gpus[1].pci.numa = {0, 1};
  EXPECT_THAT(texts(*Topology::create(machine), 2),
              ElementsAre("GPU0, NUMA node 0, CPUs 0-1", "GPU1, NUMA nodes 0 or 1, CPUs 2-7"));
}

TEST(PlaceRanks, KeepsSharesApart) {
  for (const char* file : {"nvswitch.v3.xml", "ladder.v2.xml", "no_numa.v1.xml", "nccl_dump.xml",
                           "flat_vm.v2.xml", "apu_partitions.v2.xml", "bare.v2.xml"}) {
    const Topology machine = golden(file);
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      const auto places = place_ranks(machine, ranks);
      ASSERT_EQ(places.size(), ranks);
      for (const RankPlace& one : places) {
        EXPECT_FALSE(one.numa.empty());
        for (const RankPlace& other : places) {
          const bool may_share = &one == &other || one.cpus == other.cpus;
          EXPECT_TRUE(may_share || !one.cpus.intersects(other.cpus)) << file << ", " << ranks;
        }
      }
    }
  }
}

TEST(Cluster, NamesRailsByWhatNicsServeAndNotByTheirNames) {
  const Topology one = described("2 packages, 2 gpus/package, 1 nic/gpu 400 Gb/s");
  Machine other = one.machine();
  std::swap(other.nics[0].name, other.nics[3].name);
  std::swap(other.nics[0].ports[0].device, other.nics[3].ports[0].device);
  other.nics[1].ports[0].rate = GBps{25};
  const auto cluster = value_of(make_cluster({one, *Topology::create(other)}));
  ASSERT_EQ(cluster.rails.size(), 4);
  EXPECT_THAT(cluster.rails[0].nics, ElementsAre(0, 0));
  EXPECT_THAT(cluster.rails[3].nics, ElementsAre(3, 3));
  EXPECT_EQ(cluster.rails[0].rate, GBps{50});
  EXPECT_EQ(cluster.rails[1].rate, GBps{25}) << "a rail has the rate of its slowest NIC";
  EXPECT_EQ(cluster.host_rate(), GBps{175});
}

TEST(Cluster, HasAsManyRailsAsItsPoorestHost) {
  const auto cluster = make_cluster({described("4 gpus, 1 nic/gpu"), described("4 gpus, 2 nics"),
                                     described("4 gpus, 1 nic/gpu")});
  EXPECT_EQ(cluster->rails.size(), 2);
  const auto without = make_cluster({described("2 gpus"), described("2 gpus, 1 nic")});
  EXPECT_TRUE(without->rails.empty());
  EXPECT_EQ(without->host_rate(), std::nullopt);
  EXPECT_FALSE(make_cluster({}));
}

TEST(Cluster, ReckonsWithWhatIsSaidOfTheNetwork) {
  const auto facts = read_network("rail 200 Gb/s,  oversubscription 2.5 , latency 3 us");
  ASSERT_TRUE(facts) << facts.status().to_string();
  EXPECT_EQ(*facts, (NetworkFacts{2.5, 3.0, GBps{25}}));
  const Topology host = described("2 gpus, 1 nic/gpu 400 Gb/s");
  EXPECT_EQ(make_cluster({host, host}, *facts)->host_rate(), GBps{20});
  // The rate of a host without NICs is known only from the facts that the user gives.
  EXPECT_EQ(make_cluster({described("2 gpus")}, *facts)->host_rate(), GBps{10});
  // If the rate of one rail is unknown, the total rate of the rails is unknown.
  Machine half = host.machine();
  half.nics[1].ports[0].rate.reset();
  EXPECT_EQ(make_cluster({*Topology::create(half)})->host_rate(), std::nullopt);
  EXPECT_EQ(*read_network(" "), NetworkFacts());
}

TEST(Cluster, RefusesWhatNoNetworkIs) {
  const auto message = [](std::string_view text) {
    const auto facts = read_network(text);
    EXPECT_EQ(facts.code(), Code::invalid_argument) << text;
    return std::string(facts.status().message());
  };
  EXPECT_THAT(message("oversubscription 0.5"), HasSubstr("a number from 1 to 1000"));
  EXPECT_THAT(message("oversubscription nan"), HasSubstr("a number from 1 to 1000"));
  EXPECT_THAT(message("oversubscription 2 x"), HasSubstr("a number from 1 to 1000"));
  EXPECT_THAT(message("latency 3"), HasSubstr("such as 3 us"));
  EXPECT_THAT(message("latency -3 us"), HasSubstr("such as 3 us"));
  EXPECT_THAT(message("rail 0 Gb/s"), HasSubstr("such as 200 Gb/s"));
  EXPECT_THAT(message("latency 3 us,"), HasSubstr("is empty"));
  EXPECT_THAT(message("latency 3 us, latency 4 us"), HasSubstr("said twice"));
  EXPECT_THAT(message("rail 1e-300 Gb/s"), HasSubstr("such as 200 Gb/s"));
  EXPECT_THAT(message("fat tree"), HasSubstr("say oversubscription, latency or rail"));
}

}  // namespace
}  // namespace xylem::topology::test
