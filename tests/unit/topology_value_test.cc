// SPDX-License-Identifier: Apache-2.0
//
// Topology::create: the machines that it refuses, and its messages. Also the fingerprints of valid
// machines.
#include "unit/topology_fixture.h"
#include "xylem/topology/fingerprint.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

namespace xylem::topology::test {
namespace {

/// A valid machine with one object of each kind. Tests change it to make it invalid.
Machine whole_machine() {
  Machine machine = plain_machine();
  machine.bridges.push_back({function(0, kRoot, 16), 1, 9});
  machine.bridges.push_back({function(1, bridge(0), 16), 2, 9});
  machine.gpus.emplace_back().pci = function(2, bridge(1), 16);
  machine.gpus.emplace_back().pci = function(3, bridge(1), 16);
  machine.nics.emplace_back().pci = function(4, bridge(1), 16);
  machine.nics.back().ports.push_back({"mlx5_0", 1, PortState::active, {}, GBps{25}});
  machine.nvswitches.push_back({function(5, kRoot, 1)});
  machine.interfaces.push_back({"eth0", {}, {}, {}, {}, {}, 0});
  machine.interfaces.push_back({"lo", {}, {}, {}, {}, {}, {}});
  machine.links.push_back({gpu(0), gpu(1), LinkKind::nvlink, {}});
  machine.links.push_back({gpu(0), nvswitch(0), LinkKind::nvlink, {}});
  return machine;
}

TEST(Topology, TakesAMachineThatFitsTogether) {
  const auto topology = value_of(Topology::create(whole_machine()));
  EXPECT_EQ(topology.machine(), whole_machine());
  const Topology copy = topology;
  EXPECT_EQ(&copy.machine(), &topology.machine()) << "copies share the facts";
}

struct Breakage {
  const char* name;
  std::function<void(Machine&)> act;
  const char* message;
};

const Breakage kBreakages[] = {
    {"NoNumaNode", [](Machine& m) { m.numa_nodes.clear(); }, "it has no NUMA node"},
    {"NoSuchPackage", [](Machine& m) { m.numa_nodes[0].package = 1; }, "no package 1"},
    {"NoPlace", [](Machine& m) { m.gpus[1].pci.numa.clear(); },
     "gpu1 (0000:03:00.0): it is near no"},
    {"NoSuchPlace", [](Machine& m) { m.host_bridges[0].numa = {1}; },
     "host bridge 0: there is no NUMA"},
    {"PlacesTwice",
     [](Machine& m) {
       m.nics[0].pci.numa = {0, 0};
     },
     "nic0 (0000:04:00.0): its NUMA"},
    {"Order", [](Machine& m) { std::swap(m.gpus[0], m.gpus[1]); }, "order of their PCI addresses"},
    {"AddressTwice", [](Machine& m) { m.gpus[1] = m.gpus[0]; }, "each once"},
    {"NoSuchParent", [](Machine& m) { m.gpus[0].pci.parent = bridge(2); },
     "its parent bridge2 is no bridge here"},
    {"ParentNoBridge", [](Machine& m) { m.nics[0].pci.parent = gpu(0); }, "its parent gpu0"},
    {"Cycle", [](Machine& m) { m.bridges[0].pci.parent = bridge(1); }, "a cycle"},
    {"OwnParent", [](Machine& m) { m.bridges[1].pci.parent = bridge(1); }, "a cycle"},
    {"NoRate", [](Machine& m) { m.gpus[0].pci.uplink.bandwidth = GBps{0}; }, "above zero"},
    {"NotANumber", [](Machine& m) { m.gpus[0].pci.uplink.bandwidth = GBps{std::nan("")}; },
     "finite"},
    {"NoOrigin", [](Machine& m) { m.gpus[0].pci.uplink.origin = Origin::unknown; },
     "has an origin"},
    {"PortRate", [](Machine& m) { m.nics[0].ports[0].rate = GBps{-1}; }, "above zero"},
    {"Buses",
     [](Machine& m) {
       m.host_bridges[0].first_bus = 0xff;
       m.host_bridges[0].last_bus = 0;
     },
     "first bus is beyond its last"},
    {"InterfaceTwice", [](Machine& m) { m.interfaces[1].name = "eth0"; }, "interface eth0"},
    {"NoSuchNic", [](Machine& m) { m.interfaces[0].nic = 1; }, "there is no NIC of index 1"},
    {"SelfLink", [](Machine& m) { m.links[0].b = gpu(0); }, "first end comes before its second"},
    {"LinkTwice", [](Machine& m) { m.links[1] = m.links[0]; }, "links are in order"},
    {"LinkToNic", [](Machine& m) { m.links[0].b = nic(0); }, "links join GPUs"},
    {"LinkNowhere", [](Machine& m) { m.links[0].b = gpu(7); }, "that exist"},
    {"PcieLink", [](Machine& m) { m.links[0].kind = LinkKind::pcie; }, "given by uplinks"},
    {"TooManyGpus", [](Machine& m) { m.gpus.resize(kMaxGpus + 1); }, "GPUs are more than the"},
};

TEST(Topology, IsRefusedByName) {
  for (const auto& [name, act, message] : kBreakages) {
    Machine machine = whole_machine();
    act(machine);
    EXPECT_THAT(Topology::create(machine), fails_with(message)) << name;
  }
}

Fingerprint print_of(const Machine& machine) { return fingerprint(*Topology::create(machine)); }

TEST(Fingerprint, IsStableAcrossBuilds) {
  // These values must never change, since caches on disk use them as keys.
  EXPECT_EQ(fingerprint(golden("ladder.v2.xml")).to_string(), "b2bba6b5fa9c1b7d");
  EXPECT_EQ(fingerprint(golden("bare.v2.xml")).to_string(), "690b370b4e6e8241");
}

TEST(Fingerprint, DoesNotSeeWhatDiffersBetweenEqualHosts) {
  const Fingerprint before = print_of(whole_machine());
  Machine machine = whole_machine();
  machine.host = "another";
  machine.gpus[0].uuid = "GPU-1";
  machine.nics[0].name = "mlx5_7";
  machine.nics[0].ports[0].state = PortState::down;
  machine.gpus[0].pci.uplink.bandwidth = GBps{1};  // The GPU is in a power-saving state.
  machine.interfaces.clear();
  EXPECT_EQ(print_of(machine), before);
}

TEST(Fingerprint, SeesEveryKindOfHardware) {
  const Fingerprint before = print_of(whole_machine());
  const std::function<void(Machine&)> changes[] = {
      [](Machine& m) { m.packages[0].cpu_model = "CPU 2"; },
      [](Machine& m) { m.packages[0].cores = 4; },
      [](Machine& m) { m.packages[0].cores.reset(); },
      [](Machine& m) { m.numa_nodes.emplace_back().os_index = 1; },
      [](Machine& m) { m.gpus[0].pci.id.device = 1; },
      [](Machine& m) { m.gpus[1].partitions.resize(2); },
      [](Machine& m) { m.nics[0].pci.id.device = 1; },
      [](Machine& m) { m.links.clear(); },
      [](Machine& m) { m.nics[0].pci.parent = kRoot; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    Machine machine = whole_machine();
    changes[i](machine);
    EXPECT_NE(print_of(machine), before) << "change " << i;
  }
}

}  // namespace
}  // namespace xylem::topology::test
