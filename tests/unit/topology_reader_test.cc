// SPDX-License-Identifier: Apache-2.0
//
// The reader of hwloc XML: what it finds in the golden machines, and how it refuses damaged and
// hostile files.
#include "unit/topology_fixture.h"

#include <gmock/gmock.h>

#include <chrono>

namespace xylem::topology::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(HwlocReader, FindsProcessorsAndMemory) {
  const Topology ladder = golden("ladder.v2.xml");
  ASSERT_EQ(ladder.packages().size(), 2U);
  EXPECT_EQ(ladder.packages()[1].cpu_model, "Example CPU 4-Core");
  EXPECT_EQ(ladder.packages()[1].cores, 4U);
  EXPECT_EQ(ladder.packages()[1].cpus.to_string(), "4-7,12-15");
  ASSERT_EQ(ladder.numa_nodes().size(), 2U);
  EXPECT_EQ(ladder.numa_nodes()[1].package, 1U);
  EXPECT_EQ(ladder.numa_nodes()[1].cores, 4U);
  EXPECT_EQ(ladder.numa_nodes()[1].memory, Bytes{34359738368});
  EXPECT_FALSE(ladder.numa_nodes()[1].implied);
  EXPECT_EQ(ladder.machine().host, "ladder");
  EXPECT_EQ(ladder.machine().product, "Example 8000");
}

TEST(HwlocReader, OrdersDevicesByBusAndLeavesOutTheManagementVga) {
  const Topology ladder = golden("ladder.v2.xml");
  ASSERT_EQ(ladder.gpus().size(), 4U);
  EXPECT_EQ(ladder.gpus()[0].pci.address.to_string(), "0000:13:00.0");
  EXPECT_EQ(ladder.gpus()[3].pci.address.to_string(), "0000:91:00.0");
  EXPECT_EQ(ladder.gpus()[0].model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(ladder.gpus()[0].uuid, "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_THAT(ladder.gpus()[0].os_names, ElementsAre("card1", "nvml0"));
  EXPECT_THAT(ladder.gpus()[0].partitions, IsEmpty());
  EXPECT_EQ(ladder.gpus()[0].pci.uplink.origin, Origin::read);
  EXPECT_EQ(ladder.gpus()[3].pci.numa, Locality{1});
}

TEST(HwlocReader, NamesNicsByTheirRdmaDeviceAndKeepsPortsAndInterfaces) {
  const Topology ladder = golden("ladder.v2.xml");
  ASSERT_EQ(ladder.nics().size(), 3U);
  EXPECT_EQ(ladder.nics()[0].name, "eno1");
  EXPECT_FALSE(ladder.nics()[0].fabric);
  EXPECT_EQ(ladder.nics()[1].name, "mlx5_0");
  EXPECT_TRUE(ladder.nics()[1].fabric);
  EXPECT_THAT(ladder.nics()[1].ports,
              ElementsAre(Port{"mlx5_0", 1, PortState::active, LinkLayer::unknown, {}}));
  EXPECT_EQ(ladder.nics()[2].ports.front().state, PortState::down);
  EXPECT_THAT(ladder.fabric_nics(), ElementsAre(1, 2));
  ASSERT_EQ(ladder.interfaces().size(), 3U);
  EXPECT_EQ(ladder.interfaces()[1].name, "ib0");
  EXPECT_EQ(ladder.interfaces()[1].nic, 1U);
}

TEST(HwlocReader, KeepsOnlyBridgesThatLeadToADevice) {
  const Topology ladder = golden("ladder.v2.xml");
  EXPECT_EQ(ladder.host_bridges().size(), 4U);
  for (const Bridge& bridge : ladder.bridges()) {
    EXPECT_NE(bridge.pci.address.to_string(), "0000:00:02.0")
        << "a bridge that leads only to the VGA is left out";
  }
}

TEST(HwlocReader, Schema1WithoutNumaMakesTheWholeMachineNodeZero) {
  const Topology old = golden("no_numa.v1.xml");
  ASSERT_EQ(old.numa_nodes().size(), 1U);
  EXPECT_TRUE(old.numa_nodes()[0].implied);
  EXPECT_EQ(old.numa_nodes()[0].memory, Bytes{8589934592});
  EXPECT_EQ(old.numa_nodes()[0].cores, 4U);
  EXPECT_EQ(old.packages()[0].cpu_model, "Example CPU")
      << "the file has this for the machine, not for the package";
  EXPECT_EQ(old.gpus()[0].pci.numa, Locality{0});
  ASSERT_EQ(old.nics().size(), 1U);
  EXPECT_THAT(old.nics()[0].ports,
              ElementsAre(Port{"mlx4_0", 1, PortState::active, LinkLayer::unknown, {}},
                          Port{"mlx4_0", 2, PortState::down, LinkLayer::unknown, {}}));
}

TEST(HwlocReader, Schema3HasTypesAsBitsAndItsHostBesideTheMachine) {
  const Topology switched = golden("nvswitch.v3.xml");
  EXPECT_EQ(switched.machine().host, "switched");
  EXPECT_EQ(switched.nvswitches().size(), 2U);
  ASSERT_EQ(switched.links().size(), 4U);
  for (const Link& link : switched.links()) {
    EXPECT_EQ(link.a.kind, NodeKind::gpu);
    EXPECT_EQ(link.b.kind, NodeKind::nvswitch);
    EXPECT_EQ(link.kind, LinkKind::nvlink);
    EXPECT_EQ(link.rate.bandwidth, GBps{75});
    EXPECT_EQ(link.rate.width, 3U);
  }
}

TEST(HwlocReader, UnknownPlaceListsEveryNodeItCouldBe) {
  const Topology flat = golden("flat_vm.v2.xml");
  for (const Gpu& gpu : flat.gpus()) EXPECT_EQ(gpu.pci.numa, (Locality{0, 1}));
  EXPECT_EQ(flat.packages()[0].cores, std::nullopt) << "the file has no cores";
  EXPECT_EQ(flat.gpus()[0].pci.uplink, Rate{}) << "a speed of zero is an unknown one";
}

TEST(HwlocReader, PartitionsShareTheirDevice) {
  const Topology apu = golden("apu_partitions.v2.xml");
  ASSERT_EQ(apu.gpus().size(), 2U);
  EXPECT_THAT(apu.gpus()[1].partitions,
              ElementsAre(Partition{"rsmi2", ""}, Partition{"rsmi3", ""}));
  EXPECT_EQ(apu.gpus()[1].uuid, "") << "an identity of zeros is none";
  ASSERT_EQ(apu.links().size(), 1U) << "links between partitions of two devices are one link";
  EXPECT_EQ(apu.links()[0].kind, LinkKind::xgmi);
  EXPECT_EQ(apu.nics()[0].name, "hsi0");
  EXPECT_TRUE(apu.nics()[0].fabric) << "a Cassini has no verbs, yet is a fabric NIC";
}

TEST(HwlocReader, MachineWithoutDevicesIsATopology) {
  const Topology bare = golden("bare.v2.xml");
  EXPECT_THAT(bare.gpus(), IsEmpty());
  EXPECT_THAT(bare.nics(), IsEmpty());
  EXPECT_THAT(bare.host_bridges(), IsEmpty());
  EXPECT_EQ(bare.packages()[0].cores, 2U);
}

// ---- refusals ----

/// A file that contains `machine`, beginning on line 3.
std::string around(const std::string& machine) {
  return "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n" + machine + "\n</topology>\n";
}

std::string machine(const std::string& inside) {
  return around(R"(<object type="Machine" cpuset="0x1" nodeset="0x1">)" + inside + "</object>");
}

const std::string kGpu =
    R"(<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:1] [10de:1] 00"/>)";

struct Refusal {
  const char* name;
  std::string text;
  const char* place;
  const char* rule;
};

class RefusedXml : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedXml, NamesTheFileTheLineAndTheRule) {
  const auto topology = read_hwloc_xml(GetParam().text, "m.xml");
  ASSERT_FALSE(topology.is_ok());
  EXPECT_EQ(topology.code(), Code::invalid_argument);
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr(GetParam().place));
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr(GetParam().rule));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::vector<Refusal> refusals() {
  const std::string entities =
      "<?xml version=\"1.0\"?>\n<!DOCTYPE topology [<!ENTITY a \"lol\"><!ENTITY b \"&a;&a;\">]>\n"
      "<topology version=\"2.0\"><object type=\"Machine\"/></topology>";
  const std::string bridge =
      R"(<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-ff]">)" + kGpu + "</object>";
  const std::string matrix =
      "<object type=\"Machine\"/>\n<distances2 nbobjs=\"2\" name=\"NVLinkBandwidth\">"
      "<indexes>1 2</indexes><u64values>0 1 1</u64values></distances2>";
  return {
      {"Empty", "", "m.xml:1:", "not well-formed XML"},
      {"Truncated", machine(kGpu).substr(0, 150), "m.xml:3:", "not well-formed XML"},
      {"NotXml", "GPU0 X PIX", "m.xml:1:", "not well-formed XML"},
      {"AnotherRoot", "\n\n<system version=\"1\"/>", "m.xml:3:", "not hwloc's <topology>"},
      {"Entities", entities, "m.xml:2:", "declares entities"},
      {"FutureSchema", "<topology version=\"4.0\"/>", "m.xml:1:", "schema version \"4.0\""},
      {"NoSchema", "<topology version=\"new\"/>", "m.xml:1:", "schema version \"new\""},
      {"NoMachine", around("<object type=\"PU\"/>"), "m.xml:2:", "not of type Machine"},
      {"NoObject", around(""), "m.xml:2:", "not of type Machine"},
      {"Bitmap", around(R"(<object type="Machine" cpuset="0xf...f"/>)"),
       "m.xml:3:", "cpuset \"0xf...f\""},
      {"NodeWithoutNumber", machine("\n<object type=\"NUMANode\"/>"), "m.xml:4:", "os_index \"\""},
      {"NodeTwice",
       machine("<object type=\"NUMANode\" os_index=\"1\"/>\n<object type=\"NUMANode\" "
               "os_index=\"1\"/>"),
       "m.xml:4:", "NUMA node 1 is here twice"},
      {"Address", machine("\n\n" + replaced(kGpu, "0000:01:00.0", "0000:01:40.0")),
       "m.xml:5:", "\"0000:01:40.0\" is no PCI address"},
      {"AddressTwice", machine(kGpu + "\n" + kGpu), "m.xml:4:", "0000:01:00.0 is here twice"},
      {"Type", machine(replaced(kGpu, "0302 ", "")), "m.xml:3:", "pci_type"},
      {"Speed", machine(replaced(kGpu, "/>", " pci_link_speed=\"nan\"/>")),
       "m.xml:3:", "pci_link_speed \"nan\""},
      {"NegativeSpeed", machine(replaced(kGpu, "/>", " pci_link_speed=\"-1\"/>")),
       "m.xml:3:", "pci_link_speed \"-1\""},
      {"Buses", machine(replaced(bridge, "[00-ff]", "[ff-00]")), "m.xml:3:", "bridge_pci"},
      {"NamelessOsDevice",
       machine(replaced(kGpu, "/>", R"(><object type="OSDev" osdev_type="1"/></object>)")),
       "m.xml:3:", "has no name"},
      {"ShortMatrix", around(matrix), "m.xml:4:", "2 indexes and 4 values, but here are 2 and 3"},
      {"HugeMatrix", around(replaced(matrix, "nbobjs=\"2\"", "nbobjs=\"4000000000\"")),
       "m.xml:4:", "nbobjs \"4000000000\""},
      {"MatrixValue", around(replaced(matrix, "0 1 1", "0 1 1 x")), "m.xml:4:", "value \"x\""},
  };
}

INSTANTIATE_TEST_SUITE_P(Each, RefusedXml, testing::ValuesIn(refusals()), [](const auto& tested) {
  return tested.param.name;
});

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HwlocReader, RefusesNestingWithoutBound) {
  constexpr std::size_t kLevels = 100'000;
  const auto topology = read_hwloc_xml(
      machine(repeated("<object type=\"Group\">", kLevels) + repeated("</object>", kLevels)),
      "deep");
  ASSERT_FALSE(topology.is_ok());
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("nested deeper than"));
}

TEST(HwlocReader, RefusesMoreBridgesInAChainThanBusesExist) {
  std::string chain;
  for (int i = 0; i < 300; ++i) {
    chain +=
        "<object type=\"Bridge\" bridge_type=\"1-1\" bridge_pci=\"0000:[00-ff]\" "
        "pci_busid=\"0000:" +
        std::string(1, "0123456789abcdef"[i / 16 % 16]) + "0123456789abcdef"[i % 16] + ":0" +
        std::to_string(i / 256) + ".0\" pci_type=\"0604 [1:1] [1:1] 00\">";
  }
  const auto topology = read_hwloc_xml(machine(chain + kGpu + repeated("</object>", 300)), "chain");
  ASSERT_FALSE(topology.is_ok());
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("more than 255 bridges"));
}

TEST(HwlocReader, RefusesMoreTextAndMoreElementsThanAMachineHas) {
  const auto large = read_hwloc_xml(std::string(kMaxSourceBytes + 1, ' '), "large");
  ASSERT_FALSE(large.is_ok());
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("more than the"));
  const auto many = read_hwloc_xml(machine(repeated("<a/>", 2'000'001)), "many");
  ASSERT_FALSE(many.is_ok());
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("XML elements"));
}

TEST(HwlocReader, ManyDevicesBelowOneLargeSetAreReadInLinearTime) {
  // For each device the reader looks up the locality of the machine, whose bitmap is long.
  std::string devices;
  for (int i = 0; i < 16'000; ++i)
    devices += "<object type=\"PCIDev\" pci_busid=\"" + std::to_string(i) +
               ":01:00.0\" pci_type=\"0108 [1:1] [1:1] 00\"/>\n";
  const std::string set = "0x1" + repeated(",0xffffffff", 2000);
  const auto begin = std::chrono::steady_clock::now();
  const auto topology = read_hwloc_xml(around("<object type=\"Machine\" cpuset=\"0x1\" nodeset=\"" +
                                              set + "\">" + devices + "</object>"),
                                       "wide");
  EXPECT_TRUE(topology.is_ok()) << topology.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(HwlocReader, NamesOfDevicesCannotMoveTheCursor) {
  const auto topology = read_hwloc_xml(
      machine(
          replaced(kGpu, "/>", "><info name=\"PCIDevice\" value=\"a&#27;[2J&#10;b\"/></object>")),
      "m.xml");
  ASSERT_TRUE(topology.is_ok()) << topology.status().to_string();
  EXPECT_EQ(topology->gpus()[0].model, "a?[2J?b");
}

TEST(HwlocReader, DeviceWithoutAnyBridgeIsKept) {
  const auto topology = read_hwloc_xml(machine(kGpu), "m.xml");
  ASSERT_TRUE(topology.is_ok());
  ASSERT_EQ(topology->gpus().size(), 1U);
  EXPECT_EQ(topology->gpus()[0].pci.parent, std::nullopt);
}

TEST(ReadFile, SaysWhichFileItCannotReadAndWhy) {
  const auto missing = read_file("/nonexistent/machine.xml");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("/nonexistent/machine.xml: cannot read it (No such file"));
  const auto directory = read_file("/");
  ASSERT_FALSE(directory.is_ok());
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr("/: cannot read it"));
  const auto empty = read_file("/dev/null");
  ASSERT_FALSE(empty.is_ok());
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("the file is empty"));
  const auto endless = read_file("/dev/zero");
  ASSERT_FALSE(endless.is_ok());
  EXPECT_THAT(std::string(endless.status().message()),
              HasSubstr("must be a file of at most 16 MiB"));
}

}  // namespace
}  // namespace xylem::topology::test
