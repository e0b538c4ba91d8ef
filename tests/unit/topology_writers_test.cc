// SPDX-License-Identifier: Apache-2.0
//
// The writers, compared with golden files. If a format changes on purpose, copy the file that the
// failure names over the golden file, and read the difference.
#include "unit/topology_fixture.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace xylem::topology::test {
namespace {

using testing::HasSubstr;
using testing::Not;

void expect_golden(const std::string& written, const std::string& name) {
  const std::string expected = file_text(golden_path(name));
  if (written == expected) return;
  const std::string actual = testing::TempDir() + "/" + name;
  std::ofstream(actual, std::ios::binary) << written;
  EXPECT_EQ(written, expected) << "what was written is in " << actual;
}

TEST(Written, IsTheGoldenTextAndReadsBack) {
  for (const char* const file : kGoldenMachines) {
    SCOPED_TRACE(file);
    const Topology topology = golden(file);
    const std::string name = file, stem = name.substr(0, name.find('.'));
    expect_golden(to_tree(topology), stem + ".tree");
    expect_golden(to_matrix(topology), stem + ".matrix");
    expect_golden(to_json(topology), stem + ".json");
    EXPECT_EQ(value_of(read_json(to_json(topology), "json")), topology);
    const std::string xml = to_hwloc_xml(topology);
    const Topology back = value_of(read_hwloc_xml(xml, "written"));
    EXPECT_EQ(back, topology) << xml;
    EXPECT_EQ(to_hwloc_xml(back), xml);
  }
}

// If hwloc's objects can contain a fact, the fact is written only there.
TEST(HwlocXml, TellsBesideObjectsOnlyWhatTheyHaveNoRoomFor) {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(4, kRoot, 15.75);
  machine.gpus.back().pci.id.vendor = kVendorNvidia;
  machine.gpus.back().pci.pci_class = 0x0302;
  machine.packages.front().cores.reset();
  machine.numa_nodes.front().cores.reset();
  const auto plain = value_of(Topology::create(machine));
  EXPECT_THAT(to_hwloc_xml(plain), Not(HasSubstr("Xylem:")));
  machine.gpus.back().pci.uplink = pcie_rate(16, 8);
  const std::string with_lanes = to_hwloc_xml(*Topology::create(machine));
  EXPECT_THAT(with_lanes, HasSubstr("Xylem:gpus"));
  EXPECT_THAT(with_lanes, Not(HasSubstr("Xylem:packages")));
}

TEST(HwlocXml, RefusesPartsThatAreNone) {
  const auto message = [](const std::string& name, const std::string& value) {
    const auto read = read_hwloc_xml(
        "<topology version=\"2.0\"><object type=\"Machine\">\n<info name=\"Xylem:" + name +
            "\" value=\"" + value + "\"/></object></topology>",
        "part.xml");
    return std::string(read.status().message());
  };
  EXPECT_THAT(message("gpus", "[{"), HasSubstr("part.xml:2: gpus: not well-formed JSON"));
  EXPECT_THAT(message("tpus", "[]"), HasSubstr("tpus: no such field"));
  EXPECT_THAT(message("gpus", "[1]"), HasSubstr("/gpus/0: must be an object"));
  EXPECT_EQ(message("gpus", "[]"), "");
}

TEST(Tree, InAsciiHasNoOtherCharacters) {
  const std::string tree = to_tree(golden("ladder.v2.xml"), {.ascii = true});
  EXPECT_THAT(tree, HasSubstr("`- NUMA node 1"));
  for (const char c : tree) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(Tree, SaysThatAVirtualFunctionIsOne) {
  Machine machine = plain_machine();
  machine.nics.emplace_back().pci = function(4, kRoot, 0);
  machine.nics.back().name = "mlx5_1";
  machine.nics.back().physical_function = PciAddress{0, 3, 0, 0};
  machine.nics.back().ports.push_back(
      {"mlx5_1", 1, PortState::active, LinkLayer::infiniband, GBps{25}});
  const std::string tree = to_tree(*Topology::create(machine));
  EXPECT_THAT(tree, HasSubstr("NIC0 mlx5_1, 0000:04:00.0, virtual function of 0000:03:00.0\n"));
  EXPECT_THAT(tree, HasSubstr("port mlx5_1:1, active, InfiniBand, 200 Gb/s\n"));
}

TEST(Tree, ShowsGenerationAndWidthWhereKnown) {
  Machine machine = plain_machine();
  machine.gpus.emplace_back().pci = function(4, kRoot, 0);
  machine.gpus.back().pci.uplink = pcie_rate(16, 8);
  EXPECT_THAT(to_tree(*Topology::create(machine)), HasSubstr("PCIe gen 4 x8, 15.75 GB/s"));
}

/// Returns the cells of a matrix, row by row, without surrounding blanks.
std::vector<std::vector<std::string>> cells_of(const std::string& matrix) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(matrix);
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    auto& row = rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, '\t');) {
      const auto first = cell.find_first_not_of(' ');
      row.push_back(first == std::string::npos
                        ? ""
                        : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
  }
  return rows;
}

TEST(Matrix, CanBeSplitAtTabsLikeThatOfNvidiaSmi) {
  const auto rows = cells_of(to_matrix(golden("ladder.v2.xml")));
  using Row = std::vector<std::string>;
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows[0], (Row{"", "GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1", "CPU Affinity",
                          "NUMA Affinity"}));
  EXPECT_EQ(rows[1], (Row{"GPU0", "X", "NV4", "SYS", "SYS", "PIX", "SYS", "0-3,8-11", "0"}));
  EXPECT_EQ(rows[6], (Row{"NIC1", "SYS", "SYS", "PHB", "NODE", "SYS", "X"}));
}

TEST(Matrix, NamesItsNicsAndWarnsOnlyWhereAPlaceIsAssumed) {
  const std::string known = to_matrix(golden("ladder.v2.xml"));
  EXPECT_THAT(known, HasSubstr("NIC0: mlx5_0\n"));
  EXPECT_THAT(known, Not(HasSubstr("may really be SYS")));
  EXPECT_THAT(to_matrix(golden("flat_vm.v2.xml")), HasSubstr("may really be SYS"));
}

}  // namespace
}  // namespace xylem::topology::test
