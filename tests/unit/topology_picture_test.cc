// SPDX-License-Identifier: Apache-2.0
//
// Pictures: shapes do not overlap, nothing is missing, and names from input are escaped.
#include "picture/layout.h"
#include "unit/topology_fixture.h"
#include "xylem/topology/writers.h"

#include <gmock/gmock.h>
#include <pugixml.hpp>

namespace xylem::topology::test {
namespace {

using picture::Rect;
using testing::HasSubstr;
using testing::Not;

std::vector<Topology> machines() {
  std::vector<Topology> all;
  for (const char* file :
       {"ladder.v2.xml", "flat_vm.v2.xml", "no_numa.v1.xml", "nccl_dump.xml", "nccl_template.xml",
        "rccl_mesh.xml", "nvswitch.v3.xml", "apu_partitions.v2.xml", "bare.v2.xml"}) {
    all.push_back(golden(file));
  }
  for (const char* text :
       {"2 packages, 8 gpus, 1 nic/gpu, nvswitch", "1 package, 16 gpus, nvswitch",
        "2 packages, 4 numa/package, 4 switches, 2 gpus/switch, 1 nic/switch, nvlink cube",
        "2 packages, 8 switches, 1 gpu/switch, 5 nics/switch", "4 packages, 6 gpus, xgmi mesh",
        "1 package"}) {
    all.push_back(described(text));
  }
  return all;
}

bool overlap(const Rect& a, const Rect& b) {
  return a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom();
}

bool is_within(const Rect& inner, const Rect& outer) {
  return inner.x >= outer.x && inner.right() <= outer.right() && inner.y >= outer.y &&
         inner.bottom() <= outer.bottom();
}

picture::Picture picture_of(const Topology& topology) {
  return picture::lay_out(topology, picture::story_of(topology));
}

TEST(Picture, HasNoCardUponAnother) {
  for (const Topology& topology : machines()) {
    const auto picture = picture_of(topology);
    for (std::size_t i = 0; i < picture.cards.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(overlap(picture.cards[i].rect, picture.cards[j].rect)) << to_svg(topology);
      }
    }
  }
}

TEST(Picture, HasBoxesWithinOrBesideEachOther) {
  for (const Topology& topology : machines()) {
    const auto picture = picture_of(topology);
    const Rect page{0, picture.title_bottom, picture.width, picture.height};
    for (std::size_t i = 0; i < picture.boxes.size(); ++i) {
      const Rect& box = picture.boxes[i].rect;
      EXPECT_TRUE(is_within(box, page));
      for (std::size_t j = 0; j < i; ++j) {
        const Rect& other = picture.boxes[j].rect;
        EXPECT_TRUE(!overlap(box, other) || is_within(box, other)) << to_svg(topology);
      }
      for (const auto& card : picture.cards) {
        EXPECT_TRUE(!overlap(box, card.rect) || is_within(card.rect, box)) << to_svg(topology);
      }
    }
  }
}

TEST(Picture, LeavesTheLaneFree) {
  for (const Topology& topology : machines()) {
    const auto picture = picture_of(topology);
    const Rect lane{0, picture.lane_top, picture.width, picture.lane_bottom - picture.lane_top};
    for (const auto& box : picture.boxes) EXPECT_FALSE(overlap(box.rect, lane));
    if (picture.nvswitch) {
      EXPECT_TRUE(is_within(*picture.nvswitch, lane));
    }
  }
}

TEST(Picture, ShowsEveryGpuAndNic) {
  for (const Topology& topology : machines()) {
    const auto picture = picture_of(topology);
    ASSERT_EQ(picture.gpus.size(), topology.gpus().size());
    for (std::size_t i = 0; i < picture.gpus.size(); ++i) {
      EXPECT_EQ(picture.cards[picture.gpus[i]].lines.front(), "GPU" + std::to_string(i));
    }
    for (std::size_t i = 0; i < picture.nics.size(); ++i) {
      EXPECT_TRUE(picture.cards[picture.nics[i]].lines.front().starts_with(
          topology.nics()[i].name.substr(0, 8)));
    }
  }
}

TEST(Picture, IsTwoRowsWhereOneIsTooWide) {
  const auto wide = picture_of(described("2 packages, 8 gpus, 1 nic/gpu, nvswitch"));
  EXPECT_FALSE(wide.cards[wide.gpus[3]].rect.is_turned);
  EXPECT_TRUE(wide.cards[wide.gpus[4]].rect.is_turned);
  EXPECT_EQ(wide.cards[wide.gpus[4]].rect.x, wide.cards[wide.gpus[0]].rect.x);
  const auto narrow = picture_of(described("2 packages, 2 gpus"));
  EXPECT_FALSE(narrow.cards[narrow.gpus[1]].rect.is_turned);
}

TEST(Picture, ShowsNvswitchesOfTwoGpus) {
  EXPECT_TRUE(picture_of(described("2 gpus, nvswitch")).nvswitch.has_value());
}

TEST(Picture, HasRoomForItsLines) {
  Machine machine = described("3 gpus, nvlink pairs").machine();
  machine.host = std::string(300, 'h');
  const auto picture = picture_of(*Topology::create(machine));
  constexpr double kLetter = 6;
  EXPECT_GT(picture.width, static_cast<double>(picture.ring_line.size()) * kLetter);
  EXPECT_GT(picture.width, static_cast<double>(picture.title.size()) * kLetter);
  EXPECT_LT(picture.title.size(), 100U);
}

TEST(Picture, IsWellFormed) {
  for (const Topology& topology : machines()) {
    pugi::xml_document svg;
    const std::string text = to_svg(topology);
    EXPECT_TRUE(svg.load_buffer(text.data(), text.size())) << text;
    EXPECT_STREQ(svg.document_element().name(), "svg");
  }
}

TEST(Picture, KeepsNamesText) {
  Machine machine = plain_machine();
  machine.host = "<script>alert(\"&\")</script>";
  machine.nics.emplace_back().pci = function(4, kRoot, 0);
  machine.nics.back().name = "</text><script>";
  const auto topology = value_of(Topology::create(machine));
  for (const std::string& text : {to_svg(topology), to_html(topology)}) {
    EXPECT_THAT(text, Not(HasSubstr("<script")));
    EXPECT_THAT(text, HasSubstr("&lt;script&gt;"));
  }
}

struct Shown {
  const char* picture;
  const char* description;
};

class Documents : public testing::TestWithParam<Shown> {};

// If pictures change on purpose, copy the file that the failure names over the golden file, and
// look at it.
TEST_P(Documents, ShowWhatIsDrawn) {
  const std::string drawn = to_svg(described(GetParam().description));
  const std::string name = std::string(GetParam().picture) + ".svg";
  const std::string copy = testing::TempDir() + "/" + name;
  if (drawn == file_text(XYLEM_TEST_DATA "/../docs/pictures/" + name)) return;
  std::ofstream(copy, std::ios::binary) << drawn;
  ADD_FAILURE() << "docs/pictures/" << name << " differs from the drawn picture, which is in "
                << copy;
}

INSTANTIATE_TEST_SUITE_P(
    Pictures,
    Documents,
    testing::Values(
        Shown{"hgx", "2 packages, 8 gpus, 1 nic/gpu 400 Gb/s, nvswitch"},
        Shown{"dgx1",
              "2 packages, 4 switches, 2 gpus/switch, 1 nic/switch 100 Gb/s, nvlink cube, "
              "pcie gen3 x16"},
        Shown{"dgx2", "2 packages, 8 switches, 2 gpus/switch, nvswitch x6, pcie gen3 x16"},
        Shown{"mi300x", "2 packages, 8 gpus, 1 nic/gpu 400 Gb/s, xgmi mesh"},
        Shown{"numa",
              "2 packages, 4 numa/package, 4 switches, 1 gpu/switch, 1 nic/switch 200 Gb/s, "
              "nvlink mesh x4, pcie gen4 x16"},
        Shown{"pcie",
              "2 packages, 2 switches, 4 gpus/switch, 1 nic/switch 200 Gb/s, pcie gen4 x16"}),
    [](const auto& tested) { return tested.param.picture; });

TEST(Page, SaysWhatEachGpuUses) {
  const std::string page = to_html(golden("nccl_template.xml"));
  EXPECT_THAT(page, HasSubstr("<td>PIX to 0101:00:00.0</td>"));
  EXPECT_THAT(page, HasSubstr("NIC Legend"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

}  // namespace
}  // namespace xylem::topology::test
