// SPDX-License-Identifier: Apache-2.0
//
// Mutations that keep XML well-formed, which a fuzzer of bytes rarely does: attributes are removed,
// swapped and replaced by hostile values; elements are removed, repeated and moved. So the tests
// reach the checks that follow the parser. The seed is printed, and XYLEM_TEST_SEED sets it.
#include "fuzz/topology_property.h"
#include "unit/topology_fixture.h"
#include "xylem/topology/assignment.h"

#include <pugixml.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology::test {
namespace {

constexpr int kMutations = 4000;
/// The number of edits of a file. It is small, since each edit that repeats a subtree can double
/// the file's size.
constexpr int kEdits = 6;

constexpr std::array kHostileValues{"",
                                    "0",
                                    "-1",
                                    "4294967296",
                                    "18446744073709551616",
                                    "0xf...f",
                                    "0xffffffff,,,,,,,,,,,,",
                                    "0000:[ff-00]",
                                    "0000:00:00.0",
                                    "10000:ff:1f.7",
                                    "nan",
                                    "1e309",
                                    "0302 [10de:2330] [10de:0]",
                                    "0207 [15b3:1021] [15b3:0]",
                                    "0-1",
                                    "1-1",
                                    "PCIDev",
                                    "Bridge",
                                    "NUMANode",
                                    "OSDev",
                                    "Machine",
                                    "OSDev:101",
                                    "3",
                                    "1",
                                    "255",
                                    "\x1b[2J\xff",
                                    "RSMI",
                                    "0x060400",
                                    "0x030200",
                                    "0x020000",
                                    "fffffff:ff:ff.0",
                                    "4294967295",
                                    "200000000",
                                    "1e300 GT/s"};

class Mutator {
 public:
  Mutator(const std::string& text, std::mt19937_64& random) : random_(random) {
    document_.load_string(text.c_str(), pugi::parse_default | pugi::parse_doctype);
    collect(document_.document_element());
  }

  std::string mutated() {
    const int edits = 1 + static_cast<int>(pick(kEdits));
    for (int i = 0; i < edits && !elements_.empty(); ++i) edit();
    std::ostringstream out;
    document_.save(out);
    return out.str();
  }

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }

  void collect(pugi::xml_node node) {
    elements_.push_back(node);
    for (const pugi::xml_node child : node.children()) {
      if (child.type() == pugi::node_element) collect(child);
    }
  }

  void edit() {
    pugi::xml_node element = elements_[pick(elements_.size())];
    pugi::xml_node other = elements_[pick(elements_.size())];
    auto attribute = element.first_attribute();
    for (auto skip = pick(8); skip > 0 && attribute.next_attribute(); --skip) {
      attribute = attribute.next_attribute();
    }
    switch (pick(6)) {
      case 0: element.remove_attribute(attribute); break;
      case 1: attribute.set_value(kHostileValues[pick(kHostileValues.size())]); break;
      case 2: attribute.set_value(other.attribute(attribute.name()).value()); break;
      case 3: element.parent().append_copy(other); break;  // The copy is not mutated.
      case 4:
        if (element.parent() != document_) other.append_move(element);
        break;
      default:
        // The descendants of a removed element are invalid, so only leaves are removed.
        if (element.first_child().type() != pugi::node_element && element.parent() != document_) {
          std::erase(elements_, element);
          element.parent().remove_child(element);
        }
    }
  }

  std::mt19937_64& random_;
  pugi::xml_document document_;
  std::vector<pugi::xml_node> elements_;
};

/// Reads mutations of `sources`. Each must produce a topology or be refused.
void read_mutations(const std::vector<std::string>& sources,
                    Result<Topology> (*read_xml)(std::string_view, std::string_view)) {
  const char* given = std::getenv("XYLEM_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 1;
  std::mt19937_64 random(seed);
  int read = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string text = Mutator(sources[random() % sources.size()], random).mutated();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", mutation " + std::to_string(i));
    if (check_reading(read_xml(text, "input"))) ++read;
  }
  std::printf("seed %llu: %d of %d mutations are topologies, the rest were refused\n",
              static_cast<unsigned long long>(seed), read, kMutations);
  // If all mutations had the same outcome, the test would prove nothing.
  EXPECT_GT(read, kMutations / 20);
  EXPECT_LT(read, kMutations * 19 / 20);
}

std::vector<std::string> goldens(std::initializer_list<const char*> names) {
  std::vector<std::string> texts;
  for (const char* name : names) texts.push_back(file_text(golden_path(name)));
  return texts;
}

TEST(MutatedXml, OfHwlocIsReadOrRefusedButNeverBreaksARule) {
  read_mutations(goldens({"ladder.v2.xml", "flat_vm.v2.xml", "no_numa.v1.xml", "nvswitch.v3.xml",
                          "apu_partitions.v2.xml"}),
                 &read_hwloc_xml);
}

TEST(MutatedXml, OfNcclIsReadOrRefusedButNeverBreaksARule) {
  read_mutations(goldens({"nccl_dump.xml", "nccl_template.xml", "rccl_mesh.xml"}), &read_nccl_xml);
}

/// Shuffles the PCI functions below `node`, at every level.
void shuffle(pugi::xml_node node, std::mt19937_64& random) {
  std::vector<pugi::xml_node> children;
  for (const pugi::xml_node child : node.children()) {
    const std::string_view tag = child.name();
    if (tag == "cpu" || tag == "pci") children.push_back(child);
  }
  std::ranges::shuffle(children, random);
  for (const pugi::xml_node child : children) shuffle(node.append_move(child), random);
}

TEST(ShuffledXml, IsTheSameMachineWithTheSameAssignment) {
  std::mt19937_64 random(1);
  for (const char* name : {"nccl_dump.xml", "nccl_template.xml", "rccl_mesh.xml"}) {
    const Topology machine = golden(name);
    for (int i = 0; i < 20; ++i) {
      pugi::xml_document document;
      document.load_string(file_text(golden_path(name)).c_str());
      shuffle(document.document_element(), random);
      std::ostringstream out;
      document.save(out);
      const auto shuffled = read_nccl_xml(out.str(), name);
      ASSERT_TRUE(shuffled.is_ok()) << shuffled.status().to_string();
      EXPECT_EQ(*shuffled, machine) << out.str();
      EXPECT_EQ(assign_nics(*shuffled), assign_nics(machine));
    }
  }
}

}  // namespace
}  // namespace xylem::topology::test
