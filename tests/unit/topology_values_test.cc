// SPDX-License-Identifier: Apache-2.0
//
// The small value types: CPU sets, PCI addresses, node names, rates, and cleaned text.
#include "support/outcome.h"
#include "topology/src/hwloc_xml/values.h"
#include "topology/src/text.h"
#include "xylem/topology/cpu_set.h"
#include "xylem/topology/link.h"
#include "xylem/topology/pci.h"

#include <gtest/gtest.h>

#include <set>

namespace xylem::topology {
namespace {

TEST(CpuSet, TextReadsBack) {
  for (const char* text : {"", "0", "0-15,128-143", "3,5,7", "65535"}) {
    const auto set = CpuSet::parse(text);
    ASSERT_TRUE(set.is_ok()) << text;
    EXPECT_EQ(set->to_string(), text);
  }
}

TEST(CpuSet, OverlappingAndAdjacentRangesBecomeOne) {
  CpuSet set;
  set.add(4, 5);
  set.add(0, 1);
  set.add(10, 12);
  EXPECT_EQ(set.to_string(), "0-1,4-5,10-12");
  set.add(2, 3);
  EXPECT_EQ(set.to_string(), "0-5,10-12");
  set.add(5, 11);
  EXPECT_EQ(set.to_string(), "0-12");
  EXPECT_EQ(set.count(), 13U);
}

TEST(CpuSet, AgreesWithASetOfNumbersWhateverIsAdded) {
  CpuSet ranges;
  std::set<std::uint32_t> numbers;
  std::uint32_t random = 12345;
  for (int i = 0; i < 500; ++i) {
    random = random * 1664525 + 1013904223;
    const std::uint32_t first = (random >> 8) % 2000;
    const std::uint32_t last = first + (random >> 28);
    ranges.add(first, last);
    for (auto cpu = first; cpu <= last; ++cpu) numbers.insert(cpu);
    ASSERT_EQ(ranges.count(), numbers.size()) << "after addition " << i;
  }
  for (std::uint32_t cpu = 0; cpu < 2100; ++cpu) {
    ASSERT_EQ(ranges.contains(cpu), numbers.contains(cpu)) << cpu;
  }
}

TEST(CpuSet, IntersectsOnlyWithASharedCpu) {
  const auto low = *CpuSet::parse("0-3,8-11");
  EXPECT_TRUE(low.intersects(*CpuSet::parse("11")));
  EXPECT_FALSE(low.intersects(*CpuSet::parse("4-7,12-15")));
  EXPECT_FALSE(low.intersects(CpuSet()));
}

TEST(CpuSet, TextThatIsNoListIsRefusedByName) {
  for (const char* text : {"x", "1-", "-1", "5-3", "1,", ",1", "1,,2", "65536", "1 2"}) {
    const auto set = CpuSet::parse(text);
    ASSERT_FALSE(set.is_ok()) << text;
    EXPECT_THAT(set, fails_with(std::string("\"") + text));
  }
}

TEST(CpuSet, WritesBitmapsThatItReads) {
  for (const char* text : {"", "0", "31", "32", "0-15,96-127", "65535"}) {
    const auto set = CpuSet::parse(text);
    ASSERT_TRUE(set.is_ok()) << text;
    EXPECT_EQ(CpuSet::parse_bitmap(set->to_bitmap()), *set) << set->to_bitmap();
  }
  EXPECT_EQ(CpuSet::parse("0-15,32")->to_bitmap(), "00000001,0000ffff");
}

TEST(Bitmap, WordsAreMostSignificantFirstAndEmptyOnesAreZero) {
  const auto set = CpuSet::parse_bitmap("0xffffffff,,,0x0000ffff");
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->to_string(), "0-15,96-127");
  const auto words = CpuSet::parse_bitmap("0x80000001,0x80000000");
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(words->to_string(), "31-32,63");
  const auto none = CpuSet::parse_bitmap("0x0");
  ASSERT_TRUE(none.has_value());
  EXPECT_TRUE(none->empty());
}

TEST(Bitmap, InfiniteMalformedAndHugeOnesAreRefused) {
  for (const char* text : {"", "0xf...f", "0xf...f,0x1", "0xg", "0x1ffffffff", "1 2"}) {
    EXPECT_FALSE(CpuSet::parse_bitmap(text).has_value()) << text;
  }
  EXPECT_TRUE(CpuSet::parse_bitmap("0x1" + std::string(2047, ',')).has_value());
  EXPECT_FALSE(CpuSet::parse_bitmap("0x1" + std::string(2048, ',')).has_value());
}

TEST(PciAddress, TextReadsBackAndDomainZeroMayBeLeftOut) {
  for (const char* text : {"0000:3b:00.0", "0035:03:1f.7", "10000:01:00.0"}) {
    const auto address = PciAddress::parse(text);
    ASSERT_TRUE(address.is_ok()) << text;
    EXPECT_EQ(address->to_string(), text);
  }
  EXPECT_EQ(PciAddress::parse("3b:00.1")->to_string(), "0000:3b:00.1");
}

TEST(PciAddress, IsOrderedByDomainThenBusThenDevice) {
  EXPECT_LT(*PciAddress::parse("0000:ff:00.0"), *PciAddress::parse("0001:00:00.0"));
  EXPECT_LT(*PciAddress::parse("0000:01:1f.0"), *PciAddress::parse("0000:02:00.0"));
  EXPECT_LT(*PciAddress::parse("0000:01:00.1"), *PciAddress::parse("0000:01:01.0"));
}

TEST(PciAddress, TextThatIsNoAddressIsRefused) {
  for (const char* text : {"", "3b", "3b:00", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8",
                           "0000:100:00.0", "0:0:0:0.0", "0000:3b:00.0 ", "-1:00.0", "zz:00.0"}) {
    EXPECT_FALSE(PciAddress::parse(text).is_ok()) << text;
  }
}

TEST(PciType, IsReadWithAndWithoutAProgrammingInterface) {
  const auto type = hwloc_xml::parse_pci_type("0302 [10de:2335] [10de:18bf] a1 00");
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ(type->pci_class, 0x0302);
  EXPECT_EQ(type->id, (PciId{0x10de, 0x2335, 0x10de, 0x18bf}));
  for (const char* text : {"", "0302", "0302 [10de:2335]", "zz [10de:2335] [10de:18bf]",
                           "0302 [10de2335] [10de:18bf]", "0302 10de:2335 10de:18bf"}) {
    EXPECT_FALSE(hwloc_xml::parse_pci_type(text).has_value()) << text;
  }
}

TEST(PciType, GpusAreOfTwoVendorsAndTwoClasses) {
  EXPECT_TRUE(is_gpu({kVendorNvidia, 1, 0, 0}, 0x0302));
  EXPECT_TRUE(is_gpu({kVendorAmd, 1, 0, 0}, 0x1200));
  EXPECT_FALSE(is_gpu({0x1a03, 0x2000, 0, 0}, 0x0300)) << "the VGA of a management controller";
  EXPECT_FALSE(is_gpu({kVendorAmd, 0x515e, 0, 0}, 0x0300))
      << "an ES1000 is the VGA of a management controller, too";
  EXPECT_FALSE(is_gpu({0x1172, 1, 0, 0}, 0x1200)) << "an FPGA";
  EXPECT_FALSE(is_gpu({kVendorNvidia, 1, 0, 0}, 0x0403)) << "the sound function of a GPU";
}

TEST(BusRange, IsReadOrRefused) {
  const auto range = hwloc_xml::parse_bus_range("0003:[50-5f]");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->domain, 3U);
  EXPECT_EQ(range->first, 0x50);
  EXPECT_EQ(range->last, 0x5f);
  for (const char* text : {"", "[]", "0000:[50]", "0000:[60-50]", "0000:50-5f", "0000:[50-5f"}) {
    EXPECT_FALSE(hwloc_xml::parse_bus_range(text).has_value()) << text;
  }
}

TEST(NodeRef, TextReadsBack) {
  for (const char* text : {"gpu0", "nic17", "host_bridge2", "package1", "nvswitch11"}) {
    EXPECT_EQ(NodeRef::parse(text)->to_string(), text);
  }
  for (const char* text : {"", "gpu", "0", "cpu0", "gpu-1", "gpu0x", "gpu99999999999"}) {
    EXPECT_FALSE(NodeRef::parse(text).is_ok()) << text;
  }
}

TEST(Rate, FollowsFromGenerationAndWidthAfterCoding) {
  const auto bandwidth = [](double gigatransfers) {
    return pcie_rate(gigatransfers, 16).bandwidth.value_or(GBps{}).value;
  };
  EXPECT_DOUBLE_EQ(bandwidth(2.5), 4.0);
  EXPECT_NEAR(bandwidth(8), 15.753846, 1e-6);
  EXPECT_NEAR(bandwidth(32), 63.015385, 1e-6);
  EXPECT_NEAR(bandwidth(64), 121.0, 1e-6);
  EXPECT_EQ(pcie_rate(8, 4).origin, Origin::derived);
  EXPECT_EQ(pcie_generation(16), 4);
  EXPECT_EQ(pcie_generation(17), std::nullopt);
}

TEST(CleanText, KeepsUtf8AndDropsWhatWouldHarmATerminal) {
  EXPECT_EQ(clean_text("  Tesla V100 \n"), "Tesla V100");
  EXPECT_EQ(clean_text("Grace\xe2\x84\xa2 CPU"), "Grace\xe2\x84\xa2 CPU");
  EXPECT_EQ(clean_text("a\x1b[2Jb"), "a?[2Jb");
  EXPECT_EQ(clean_text("a\xc2\x9b"
                       "b"),
            "a??b")
      << "a control sequence introducer of C1";
  EXPECT_EQ(clean_text("\xff\xc0\xaf"), "???");
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80"), "????") << "beyond the last code point";
  EXPECT_EQ(clean_text("\xe2\x84"), "??") << "cut short";
}

TEST(CleanText, IsCutBetweenCharactersAndCleaningTwiceChangesNothing) {
  std::string text(kMaxText - 2, 'x');
  text += " \xe2\x84\xa2";
  const std::string clean = clean_text(text);
  EXPECT_EQ(clean.size(), kMaxText - 2) << "no half character, no blank at the end";
  EXPECT_EQ(clean_text(clean), clean);
}

}  // namespace
}  // namespace xylem::topology
