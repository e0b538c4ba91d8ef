// SPDX-License-Identifier: Apache-2.0
//
// The reader and the writer of the XML of NCCL and RCCL, and how damaged and hostile files are
// refused. topology_writers_test.cc compares the result of reading the golden machines with golden
// files.
#include "unit/topology_fixture.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <string>

namespace xylem::topology::test {
namespace {

PathClass to_nic(const Topology& topology, std::uint32_t from, std::uint32_t to) {
  return path(topology, gpu(from), nic(to)).path_class;
}

TEST(NcclReader, TellsTheRungsApartThoughSwitchesShowNoPorts) {
  const Topology dump = golden("nccl_dump.xml");
  EXPECT_EQ(to_nic(dump, 2, 2), PathClass::pix) << "one switch above both";
  EXPECT_EQ(to_nic(dump, 0, 0), PathClass::pxb) << "a switch above two others";
  EXPECT_EQ(to_nic(dump, 1, 0), PathClass::phb) << "one CPU, no common switch";
  EXPECT_EQ(to_nic(dump, 3, 0), PathClass::sys);
  EXPECT_TRUE(path(dump, gpu(1), nic(0)).locality_assumed) << "it may be NODE";
}

TEST(NcclReader, FindsNvSwitchesByTheLinksThatLeadToThem) {
  const Topology dump = golden("nccl_dump.xml");
  ASSERT_EQ(dump.nvswitches().size(), 2U);
  EXPECT_EQ(dump.nvswitches()[0].pci.address.to_string(), "0000:c1:00.0");
  const Path across = path(dump, gpu(0), gpu(3));
  EXPECT_EQ(across.path_class, PathClass::nvl);
  EXPECT_EQ(across.nvlinks, 18U);
  EXPECT_EQ(across.bandwidth, GBps{450});
  EXPECT_EQ(across.origin, Origin::derived);
}

TEST(NcclReader, DoesNotGuessThePlaceOfVirtualNics) {
  const Topology mesh = golden("rccl_mesh.xml");
  EXPECT_EQ(to_nic(mesh, 0, 0), PathClass::unknown) << "eth0 is below both CPUs";
  EXPECT_EQ(to_nic(mesh, 2, 1), PathClass::phb) << "veth1 hangs from one CPU";
}

// One GPU reports fewer links than the other. The rate of these links is unknown.
TEST(NcclReader, TakesTheMostThatEitherEndTells) {
  const auto gpu_of = [](const char* at, const char* sm, const char* peer, const char* count) {
    return std::string("<pci busid=\"") + at + "\" class=\"0x030200\"><gpu sm=\"" + sm +
           "\"><nvlink target=\"" + peer + "\" count=\"" + count + "\"/></gpu></pci>";
  };
  const auto topology = value_of(read_nccl_xml(
      "<system version=\"1\"><cpu numaid=\"0\">" + gpu_of("01:00.0", "90", "02:00.0", "2") +
          gpu_of("02:00.0", "new", "01:00.0", "4") + "</cpu></system>",
      "test"));
  EXPECT_EQ(topology.links()[0].rate.width, 4U);
  EXPECT_EQ(topology.links()[0].rate.bandwidth, GBps{100});
}

TEST(NcclWriter, GivesBackWhatWasRead) {
  for (const char* file : {"nccl_dump.xml", "nccl_template.xml", "rccl_mesh.xml"}) {
    const Topology topology = golden(file);
    const std::string text = to_nccl_xml(topology);
    const auto back = value_of(read_nccl_xml(text, file));
    EXPECT_EQ(back, topology) << text;
  }
}

TEST(NcclWriter, SettlesAfterOneWriting) {
  for (const char* file : {"ladder.v2.xml", "flat_vm.v2.xml", "no_numa.v1.xml", "nvswitch.v3.xml",
                           "apu_partitions.v2.xml", "bare.v2.xml"}) {
    const auto once = value_of(read_nccl_xml(to_nccl_xml(golden(file)), file));
    const auto twice = value_of(read_nccl_xml(to_nccl_xml(once), file));
    EXPECT_EQ(twice, once) << file;
  }
}

// The writer omits ports and single bridges, but keeps the narrowest link of each path.
TEST(NcclWriter, KeepsWhereWaysPart) {
  const Topology ladder = golden("ladder.v2.xml");
  const auto back = value_of(read_nccl_xml(to_nccl_xml(ladder), "ladder"));
  const std::uint32_t mlx5_0 = ladder.fabric_nics().front();
  EXPECT_EQ(path(back, gpu(0), nic(0)).path_class, PathClass::pix);
  EXPECT_EQ(path(back, gpu(1), nic(0)).path_class, PathClass::pxb);
  EXPECT_EQ(path(back, gpu(1), nic(0)).bandwidth->value, pcie_rate(16, 16).bandwidth->value)
      << "a port of half the width above GPU1";
  EXPECT_EQ(path(ladder, gpu(1), nic(mlx5_0)).path_class, PathClass::pxb);
}

/// Returns a file with `inner` in its only <cpu>.
std::string file_with(const std::string& inner) {
  return "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"1\">\n" + inner +
         "\n</cpu></system>";
}
std::string gpu_with(const std::string& inner) {
  return file_with("<pci busid=\"01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"90\">\n" + inner +
                   "</gpu></pci>");
}

TEST(NcclXml, AFunctionThatStandsTwiceIsMergedWithARemark) {
  const auto topology =
      read_nccl_xml(file_with("<pci busid=\"01:00.0\" class=\"0x060400\">"
                              "<pci busid=\"02:00.0\" class=\"0x030200\"/></pci>\n"
                              "<pci busid=\"01:00.0\" class=\"0x060400\">"
                              "<pci busid=\"03:00.0\" class=\"0x030200\"/>"
                              "<pci busid=\"02:00.0\" class=\"0x030200\"/></pci>"),
                    "model.xml");
  ASSERT_TRUE(topology) << topology.status().to_string();
  ASSERT_EQ(topology->bridges().size(), 1U);
  ASSERT_EQ(topology->gpus().size(), 2U);
  for (const Gpu& gpu : topology->gpus()) {
    EXPECT_EQ(gpu.pci.parent, bridge(0)) << "below the one switch";
  }
  EXPECT_THAT(topology->remarks(),
              testing::ElementsAre(
                  "model.xml:4: PCI function 0000:01:00.0 is here twice; its first place counts",
                  "model.xml:4: PCI function 0000:02:00.0 is here twice; its first place counts"));
}

TEST(NcclXml, ABridgeWithANicAndFunctionsBelowItStaysABridge) {
  const auto topology = value_of(read_nccl_xml(
      file_with("<pci busid=\"03:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
                "link_width=\"16\"><nic><net name=\"mlx5_0\" port=\"1\" speed=\"400000\"/></nic>"
                "<pci busid=\"05:00.0\" class=\"0x030200\"><gpu sm=\"90\"/></pci></pci>"),
      "model.xml"));
  ASSERT_EQ(topology.bridges().size(), 1U);
  EXPECT_EQ(topology.bridges()[0].pci.address.to_string(), "0000:03:00.0");
  ASSERT_EQ(topology.nics().size(), 1U);
  EXPECT_EQ(topology.nics()[0].name, "mlx5_0");
  EXPECT_EQ(path(topology, gpu(0), nic(0)).path_class, PathClass::pix);
}

TEST(NcclXml, AGpuThatNamesItselfAsNvSwitchIsLinkedToAHiddenOne) {
  const auto gpu_at = [](const std::string& at) {
    return "<pci busid=\"" + at + "\" class=\"0x030200\"><gpu sm=\"100\"><nvlink target=\"" + at +
           "\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>";
  };
  const auto topology =
      value_of(read_nccl_xml(file_with(gpu_at("01:00.0") + gpu_at("02:00.0")), "model.xml"));
  EXPECT_EQ(topology.nvswitches().size(), 1U);
  EXPECT_EQ(path(topology, gpu(0), gpu(1)).path_class, PathClass::nvl);
}

// On Grace, data leave a GPU by NVLink-C2C and not by its PCIe link, which is narrow.
TEST(NcclXml, AGpuUsesItsLinkToTheCpu) {
  const auto topology = value_of(read_nccl_xml(
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"f\" arch=\"arm64\">"
      "<pci busid=\"01:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"4\">"
      "<nic><net name=\"roce0\" port=\"1\" speed=\"200000\"/></nic></pci>"
      "<pci busid=\"000f:01:00.0\" class=\"0x030000\" link_speed=\"2.5 GT/s PCIe\" "
      "link_width=\"16\"><gpu sm=\"121\"><c2c bw=\"43125\" "
      "count=\"8\"/></gpu></pci></cpu></system>",
      "c2c.xml"));
  ASSERT_EQ(topology.links().size(), 1U);
  EXPECT_EQ(topology.links()[0].rate.bandwidth, GBps{345});
  EXPECT_EQ(path(topology, gpu(0), nic(0)).bandwidth, pcie_rate(32, 4).bandwidth);
  const std::string written = to_nccl_xml(topology);
  EXPECT_THAT(written, testing::HasSubstr("<c2c bw=\"43125\" count=\"8\""));
  EXPECT_EQ(value_of(read_nccl_xml(written, "written")).links(), topology.links());
}

TEST(NcclXml, ASwitchWhoseDevicesAllStandElsewhereIsNotKept) {
  const auto topology =
      read_nccl_xml(file_with("<pci busid=\"01:00.0\" class=\"0x030200\"/>"
                              "<pci busid=\"02:00.0\" class=\"0x060400\">"
                              "<pci busid=\"01:00.0\" class=\"0x030200\"/></pci>"
                              "<pci busid=\"03:00.0\" class=\"0x060400\">"
                              "<pci busid=\"04:00.0\" class=\"0x030200\"/></pci>"),
                    "model.xml");
  ASSERT_TRUE(topology) << topology.status().to_string();
  ASSERT_EQ(topology->bridges().size(), 1U);
  EXPECT_EQ(topology->bridges()[0].pci.address.to_string(), "0000:03:00.0");
  ASSERT_EQ(topology->gpus().size(), 2U);
  EXPECT_EQ(topology->gpus()[1].pci.parent, bridge(0));
  const auto back = value_of(read_nccl_xml(to_nccl_xml(*topology), "written"));
  EXPECT_EQ(back.gpus(), topology->gpus());
}

TEST(NcclXml, WhatMergingMovesIsNearWhereItHangs) {
  const auto topology = value_of(read_nccl_xml(
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"01:00.0\" class=\"0x060400\">"
      "<pci busid=\"02:00.0\" class=\"0x030200\"/></pci></cpu>"
      "<cpu numaid=\"1\"><pci busid=\"01:00.0\" class=\"0x060400\">"
      "<pci busid=\"03:00.0\" class=\"0x030200\"/></pci></cpu></system>",
      "model.xml"));
  ASSERT_EQ(topology.gpus().size(), 2U);
  EXPECT_EQ(topology.gpus()[1].pci.numa, topology.gpus()[0].pci.numa);
  const auto back = value_of(read_nccl_xml(to_nccl_xml(topology), "written"));
  EXPECT_EQ(back.gpus(), topology.gpus());
}

TEST(NcclXml, TheFirstPlaceOfASwitchCountsThoughNothingHangsThere) {
  const auto topology = value_of(read_nccl_xml(
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"01:00.0\" class=\"0x060400\"/></cpu>"
      "<cpu numaid=\"1\"><pci busid=\"01:00.0\" class=\"0x060400\">"
      "<pci busid=\"02:00.0\" class=\"0x030200\"/></pci></cpu></system>",
      "model.xml"));
  ASSERT_EQ(topology.gpus().size(), 1U);
  EXPECT_THAT(topology.gpus()[0].pci.numa, testing::ElementsAre(0U));
  EXPECT_EQ(topology.remarks().size(), 1U);
}

TEST(NcclXml, ANicWithNeitherANameNorTheClassOfOneComesBackAsANic) {
  const auto topology =
      value_of(read_nccl_xml(file_with("<pci busid=\"01:00.0\" class=\"0x030200\">"
                                       "<nic><net name=\"\"/></nic></pci>"),
                             "model.xml"));
  ASSERT_EQ(topology.nics().size(), 1U);
  const auto back = value_of(read_nccl_xml(to_nccl_xml(topology), "written"));
  EXPECT_EQ(back.nics(), topology.nics());
  EXPECT_TRUE(back.gpus().empty());
}

struct NcclRefusal {
  const char* label;
  std::string text;
  int line;
  const char* rule;
};

std::vector<NcclRefusal> nccl_refusals() {
  return {
      {"Root", "<graphs/>", 1, "root element <graphs>"},
      {"Version", "<system version=\"7\"/>", 1, "version \"7\""},
      {"NoCpu", "<system version=\"1\"/>", 1, "there is no <cpu>"},
      {"NoNuma", "<system version=\"1\"><cpu/></system>", 1, "numaid is missing"},
      {"Numa", "<system version=\"1\"><cpu numaid=\"x\"/></system>", 1, "numaid \"x\""},
      {"NumaTwice", "<system version=\"1\"><cpu numaid=\"1\"/>\n<cpu numaid=\"1\"/></system>", 2,
       "numaid 1 is here twice"},
      {"Hosts",
       "<system version=\"1\"><cpu numaid=\"0\" host_hash=\"0x1\"/>\n<cpu numaid=\"1\" "
       "host_hash=\"0x2\"/></system>",
       2, "several hosts"},
      {"Affinity", "<system version=\"1\"><cpu numaid=\"0\" affinity=\"xyz\"/></system>", 1,
       "affinity \"xyz\""},
      {"Address", file_with("<pci busid=\"nowhere\"/>"), 3, "busid \"nowhere\""},
      {"Class", file_with("<pci busid=\"01:00.0\" class=\"0x1030200\"/>"), 3,
       "class \"0x1030200\""},
      {"Twice",
       file_with("<pci busid=\"01:00.0\" class=\"0x020000\"><nic><net name=\"a\"/></nic></pci>\n"
                 "<pci busid=\"01:00.0\" class=\"0x020000\"><nic><net name=\"b\"/></nic></pci>"),
       4, "0000:01:00.0 is here twice"},
      {"Classless", file_with("<pci busid=\"01:00.0\"/>"), 3, "neither a class"},
      {"C2c", gpu_with("<c2c bw=\"1\" count=\"0\"/>"), 4, "bw and count of <c2c>"},
      {"Target", gpu_with("<nvlink target=\"x\" count=\"1\"/>"), 4, "target \"x\""},
      {"Count", gpu_with("<nvlink target=\"02:00.0\" count=\"4000000000\"/>"), 4,
       "count \"4000000000\""},
      {"Nets",
       file_with("<pci busid=\"01:00.6\" class=\"0x020000\"><nic><net name=\"a\"/><net "
                 "name=\"b\"/>\n<net name=\"c\"/></nic></pci>"),
       4, "more <net>s than the 8 functions"},
      {"Nameless", file_with("<nic><net port=\"0\"/></nic>"), 3, "neither an address nor a name"},
      {"Malformed", "<system version=\"1\">\n<cpu", 2, "not well-formed XML"},
      {"Entities", "<!DOCTYPE system [<!ENTITY a \"b\">]>\n<system version=\"1\"/>", 1, "entities"},
  };
}

TEST(NcclReader, RefusesWithTheFileTheLineAndTheRule) {
  for (const auto& [name, text, line, rule] : nccl_refusals()) {
    SCOPED_TRACE(name);
    const auto read = read_nccl_xml(text, "machine.xml");
    EXPECT_THAT(read, fails_as(Code::invalid_argument, rule));
    EXPECT_TRUE(read.status().message().starts_with("machine.xml:" + std::to_string(line) + ":"));
  }
}

TEST(NcclReader, RefusesNestingWithoutBound) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "<pci busid=\"01:00.0\" class=\"0x060400\">";
  for (int i = 0; i < 300; ++i) text += "</pci>";
  EXPECT_THAT(read_nccl_xml(file_with(text), "machine.xml"), fails_with("more than 255 bridges"));
}

TEST(NcclReader, RefusesMoreFunctionsThanAHostHas) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "<pci busid=\"01:00.0\" class=\"0x030200\"/>";
  EXPECT_THAT(read_nccl_xml(file_with(text), "machine.xml"),
              fails_with("PCI functions: not a machine"));
}

// A data processing unit contains a switch. NCCL writes the devices below this switch into the
// <pci> of the NIC.
TEST(NcclReader, FindsWhatHangsBelowANic) {
  const auto read = value_of(read_nccl_xml(R"(
<system version="1">
  <cpu numaid="0" affinity="0f" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x020000">
      <nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>
      <pci busid="0000:02:00.0" class="0x060400">
        <pci busid="0000:03:00.0" class="0x030200"><gpu dev="0" sm="80"/></pci>
        <pci busid="0000:04:00.0" class="0x030200"><gpu dev="1" sm="80"/></pci>
      </pci>
      <pci busid="0000:05:00.0" class="0x020000">
        <nic><net name="mlx5_1" dev="1" speed="200000" port="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>)",
                                           "dpu.xml"));
  EXPECT_EQ(read.gpus().size(), 2U);
  EXPECT_EQ(read.nics().size(), 2U);
  EXPECT_EQ(path(read, gpu(0), gpu(1)).path_class, PathClass::pix);
}

}  // namespace
}  // namespace xylem::topology::test
