// SPDX-License-Identifier: Apache-2.0
//
// JSON: reading gives the value that was written, and invalid files are refused with the place of
// the error.
#include "unit/topology_fixture.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

namespace xylem::topology::test {
namespace {

using testing::HasSubstr;

class JsonOf : public testing::TestWithParam<const char*> {};

TEST_P(JsonOf, ReadsBackAsTheSameValue) {
  const Topology topology = golden(GetParam());
  const auto back = read_json(to_json(topology), "json");
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(*back, topology);
  EXPECT_EQ(to_json(*back), to_json(topology));
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         JsonOf,
                         testing::Values("ladder.v2.xml",
                                         "flat_vm.v2.xml",
                                         "no_numa.v1.xml",
                                         "nvswitch.v3.xml",
                                         "apu_partitions.v2.xml",
                                         "bare.v2.xml"),
                         [](const auto& tested) {
                           const std::string file = tested.param;
                           return file.substr(0, file.find('.'));
                         });

TEST(Json, KeepsEveryField) {
  Machine machine = plain_machine();
  machine.host = "h\"1";
  machine.product =
      "Gr\xc3\xb6\xc3\x9f"
      "e";
  machine.architecture = "x";
  machine.bridges.push_back({function(0, {NodeKind::host_bridge, 0}, 0.1), 1, 9});
  machine.bridges[0].pci.uplink = pcie_rate(16, 8);
  Gpu& gpu0 = machine.gpus.emplace_back();
  gpu0.pci = function(2, {NodeKind::bridge, 0}, 1.0 / 3);
  gpu0.pci.id = {1, 2, 3, 4};
  gpu0.pci.pci_class = 0x0302;
  gpu0.pci.vendor = "v";
  gpu0.pci.model = "d";
  gpu0.model = "m";
  gpu0.uuid = "u";
  gpu0.os_names = {"card0", "nvml0"};
  gpu0.partitions = {{"a", "1"}, {"b", ""}};
  Nic& nic0 = machine.nics.emplace_back();
  nic0.pci = function(3, {NodeKind::bridge, 0}, 0);
  nic0.pci.parent.reset();
  nic0.name = "n";
  nic0.fabric = true;
  nic0.physical_function = PciAddress{1, 2, 3, 4};
  nic0.ports = {{"p", 2, PortState::armed, LinkLayer::ethernet, GBps{12.5}}};
  nic0.ports[0].interface = "eth9";
  nic0.ports[0].gids = {{0, GidType::roce_v1, GidScope::link_local},
                        {3, GidType::roce_v2, GidScope::ipv4},
                        {5, GidType::unknown, GidScope::global}};
  machine.nvswitches.push_back({function(4, {NodeKind::bridge, 0}, 0)});
  machine.interfaces = {{"bond0", InterfaceKind::bond, InterfaceState::up, GBps{3}, 9000, "d", 0},
                        {"eth9", {}, {}, {}, {}, {}, 0, "bond0"}};
  machine.links = {{gpu(0), nvswitch(0), LinkKind::xgmi, {GBps{5}, Origin::measured, 2, {}}}};
  const auto topology = Topology::create(machine);
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  const auto back = read_json(to_json(*topology), "json");
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(back->machine(), machine);
}

TEST(Json, IsReadFromAFileByItsFirstCharacter) {
  const auto topology = read_file(golden_path("ladder.json"));
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  EXPECT_EQ(*topology, golden("ladder.v2.xml"));
}

struct Change {
  const char* name;
  const char* from;
  const char* to;
  const char* message;
};

class ChangedJson : public testing::TestWithParam<Change> {};

TEST_P(ChangedJson, IsRefusedByPlaceAndRule) {
  std::string text = file_text(golden_path("ladder.json"));
  const auto at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  const auto topology = read_json(text, "m.json");
  ASSERT_FALSE(topology.is_ok());
  EXPECT_THAT(std::string(topology.status().message()), testing::StartsWith("m.json: "));
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr(GetParam().message));
}

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

INSTANTIATE_TEST_SUITE_P(Each, ChangedJson, testing::ValuesIn(kChanges), [](const auto& tested) {
  return tested.param.name;
});

TEST(Json, RefusesNestingAndSizeWithoutBound) {
  const auto deep = read_json(std::string(1'000'000, '['), "deep");
  ASSERT_FALSE(deep.is_ok());
  EXPECT_THAT(std::string(deep.status().message()), HasSubstr("nested deeper"));
  const auto wide = read_json("[" + std::string(5'000'000, ','), "wide");
  ASSERT_FALSE(wide.is_ok());
  EXPECT_THAT(std::string(wide.status().message()), HasSubstr("larger"));
}

}  // namespace
}  // namespace xylem::topology::test
