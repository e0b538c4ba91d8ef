// SPDX-License-Identifier: Apache-2.0
//
// JSON: a topology that is written and read is unchanged. Invalid files are refused, and the error
// names the place.
#include "unit/topology_fixture.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

namespace xylem::topology::test {
namespace {

TEST(Json, KeepsEveryField) {
  Machine machine = plain_machine();
  machine.host = "h\"1";
  machine.product =
      "Gr\xc3\xb6\xc3\x9f"
      "e";
  machine.architecture = "x";
  machine.bridges.push_back({function(0, kRoot, 0.1), 1, 9});
  machine.bridges[0].pci.uplink = pcie_rate(16, 8);
  Gpu& gpu0 = machine.gpus.emplace_back();
  gpu0.pci = function(2, bridge(0), 1.0 / 3);
  gpu0.pci.id = {1, 2, 3, 4};
  gpu0.pci.pci_class = 0x0302;
  gpu0.pci.vendor = "v";
  gpu0.pci.model = "d";
  gpu0.model = "m";
  gpu0.uuid = "u";
  gpu0.os_names = {"card0", "nvml0"};
  gpu0.partitions = {{"a", "1"}, {"b", ""}};
  Nic& nic0 = machine.nics.emplace_back();
  nic0.pci = function(3, bridge(0), 0);
  nic0.pci.parent.reset();
  nic0.name = "n";
  nic0.fabric = true;
  nic0.physical_function = PciAddress{1, 2, 3, 4};
  nic0.ports = {{"p", 2, PortState::armed, LinkLayer::ethernet, GBps{12.5}}};
  nic0.ports[0].interface = "eth9";
  nic0.ports[0].gids = {{0, GidType::roce_v1, GidScope::link_local},
                        {3, GidType::roce_v2, GidScope::ipv4},
                        {5, GidType::unknown, GidScope::global}};
  machine.nvswitches.push_back({function(4, bridge(0), 0)});
  machine.interfaces = {{"bond0", InterfaceKind::bond, InterfaceState::up, GBps{3}, 9000, "d", 0},
                        {"eth9", {}, {}, {}, {}, {}, 0, "bond0"}};
  machine.links = {{gpu(0), nvswitch(0), LinkKind::xgmi, {GBps{5}, Origin::measured, 2, {}}}};
  const auto topology = value_of(Topology::create(machine));
  const auto back = value_of(read_json(to_json(topology), "json"));
  EXPECT_EQ(back.machine(), machine);
}

TEST(Json, IsReadFromAFileByItsFirstCharacter) {
  const auto topology = value_of(read_file(golden_path("ladder.json")));
  EXPECT_EQ(topology, golden("ladder.v2.xml"));
}

struct Change {
  const char* name;
  const char* from;
  const char* to;
  const char* message;
};

const Change kChanges[] = {
    {"Syntax", "\"host\":", "\"host\"", "not well-formed JSON"},
    {"NoVersion", "\"xylem_topology\": 1,", "", "no topology of Xylem"},
    {"Version", "\"xylem_topology\": 1", "\"xylem_topology\": 2", "version 2"},
    {"UnknownField", "\"host\":", "\"hots\":", "/hots: no such field"},
    {"UnknownInner", "\"cpu_model\":", "\"cpu_modle\":", "/packages/0/cpu_modle: no such field"},
    {"Missing", "\"os_index\": 0,", "", "/packages/0/os_index: missing"},
    {"Type", "\"cores\": 4", "\"cores\": \"4\"", "/packages/0/cores: must be an integer"},
    {"Negative", "\"cores\": 4", "\"cores\": -4", "must be an integer from 0 to 4294967295"},
    {"Fraction", "\"cores\": 4", "\"cores\": 4.5", "must be an integer"},
    {"Range", "\"last_bus\": 3,", "\"last_bus\": 256,",
     "/host_bridges/0/last_bus: must be an integer"},
    {"Cpus", "\"cpus\": \"0-3", "\"cpus\": \"3-0", "/packages/0/cpus: \"3-0"},
    {"Enumeration", "\"origin\": \"read\"", "\"origin\": \"guessed\"",
     "\"guessed\" is none of unknown"},
    {"Address", "\"bus_id\": \"0000:00", "\"bus_id\": \"0000:zz",
     "/bridges/0/pci/bus_id: \"0000:zz"},
    {"Parent", "\"parent\": \"host_bridge0\"", "\"parent\": \"root\"", "\"root\" names no node"},
    {"NotAnArray", "\"packages\": [", "\"packages\": {}, \"derived\": [",
     "/packages: must be an array"},
    {"Bool", "\"fabric\": true", "\"fabric\": 1", "/nics/1/fabric: must be true or false"},
    {"Invariant", "\"numa\": [\n        0", "\"numa\": [\n        7", "no NUMA node of index 7"},
};

TEST(Json, IsRefusedByPlaceAndRule) {
  for (const auto& [name, from, to, message] : kChanges) {
    SCOPED_TRACE(name);
    const auto read =
        read_json(replaced(file_text(golden_path("ladder.json")), from, to), "m.json");
    EXPECT_THAT(read, fails_with(message));
    EXPECT_TRUE(read.status().message().starts_with("m.json: "));
  }
}

TEST(Json, RefusesNestingAndSizeWithoutBound) {
  EXPECT_THAT(read_json(std::string(1'000'000, '['), "deep"), fails_with("nested deeper"));
  EXPECT_THAT(read_json("[" + std::string(5'000'000, ','), "wide"), fails_with("larger"));
}

}  // namespace
}  // namespace xylem::topology::test
