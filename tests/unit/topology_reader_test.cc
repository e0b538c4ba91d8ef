// SPDX-License-Identifier: Apache-2.0
//
// The reader of hwloc XML: how it refuses damaged and hostile files. topology_writers_test.cc
// compares the result of reading the golden machines with golden files.
#include "unit/topology_fixture.h"

#include <gmock/gmock.h>

#include <chrono>

namespace xylem::topology::test {
namespace {

/// Returns a file that contains `machine`, beginning on line 3.
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

TEST(HwlocReader, RefusesWithTheFileTheLineAndTheRule) {
  for (const auto& [name, text, place, rule] : refusals()) {
    SCOPED_TRACE(name);
    EXPECT_THAT(read_hwloc_xml(text, "m.xml"), fails_as(Code::invalid_argument, place, rule));
  }
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HwlocReader, RefusesNestingWithoutBound) {
  constexpr std::size_t kLevels = 100'000;
  EXPECT_THAT(read_hwloc_xml(machine(repeated("<object type=\"Group\">", kLevels) +
                                     repeated("</object>", kLevels)),
                             "deep"),
              fails_with("nested deeper than"));
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
  EXPECT_THAT(read_hwloc_xml(machine(chain + kGpu + repeated("</object>", 300)), "chain"),
              fails_with("more than 255 bridges"));
}

TEST(HwlocReader, RefusesMoreTextAndMoreElementsThanAMachineHas) {
  EXPECT_THAT(read_hwloc_xml(std::string(kMaxSourceBytes + 1, ' '), "large"),
              fails_with("more than the"));
  EXPECT_THAT(read_hwloc_xml(machine(repeated("<a/>", 2'000'001)), "many"),
              fails_with("XML elements"));
}

TEST(HwlocReader, ManyDevicesBelowOneLargeSetAreReadInLinearTime) {
  // For each device, the reader looks up the locality of the machine, which is a long bitmap.
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
  const auto topology = value_of(read_hwloc_xml(
      machine(
          replaced(kGpu, "/>", "><info name=\"PCIDevice\" value=\"a&#27;[2J&#10;b\"/></object>")),
      "m.xml"));
  EXPECT_EQ(topology.gpus()[0].model, "a?[2J?b");
}

TEST(HwlocReader, DeviceWithoutAnyBridgeIsKept) {
  const auto topology = value_of(read_hwloc_xml(machine(kGpu), "m.xml"));
  ASSERT_EQ(topology.gpus().size(), 1U);
  EXPECT_EQ(topology.gpus()[0].pci.parent, std::nullopt);
}

TEST(ReadFile, SaysWhichFileItCannotReadAndWhy) {
  EXPECT_THAT(read_file("/nonexistent/machine.xml"),
              fails_with("/nonexistent/machine.xml: cannot read it (No such file"));
  EXPECT_THAT(read_file("/"), fails_with("/: cannot read it"));
  EXPECT_THAT(read_file("/dev/null"), fails_with("the file is empty"));
  EXPECT_THAT(read_file("/dev/zero"), fails_with("must be a file of at most 16 MiB"));
}

}  // namespace
}  // namespace xylem::topology::test
