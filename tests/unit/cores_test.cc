// SPDX-License-Identifier: Apache-2.0
//
// The cores on which the ranks of a host can run, and limits by cgroups.
#include "runtime/src/progress/cores.h"

#include "support/subprocess.h"

#include <gtest/gtest.h>

#include <fstream>

namespace xylem::runtime {
namespace {

TEST(Cores, OwnAreSomeAndSurviveTheirText) {
  const CoreSet own = own_cores();
  EXPECT_GE(cores_together({&own, 1}, {}), 1U);
  EXPECT_EQ(parse_cores(to_text(own)), own);
}

TEST(Cores, OfRanksThatArePinnedApartAddUp) {
  const std::vector<CoreSet> pinned = {{1}, {2}, {0, 4}};
  EXPECT_EQ(cores_together(pinned, {}), 3U);
  EXPECT_EQ(cores_together(pinned, 2), 2U);
}

TEST(Cores, OfRanksThatShareThemCountOnce) {
  const std::vector<CoreSet> shared = {{3}, {3}, {2}};
  EXPECT_EQ(cores_together(shared, {}), 2U);
}

TEST(Cores, AreNeverNone) {
  EXPECT_EQ(cores_together({}, {}), 1U);
  EXPECT_EQ(cores_together({}, 0), 1U);
}

TEST(Cores, AreOneForEachRankIfAsManyRanksShareThemAll) {
  const auto holds = [](const std::vector<CoreSet>& sets) { return has_core_for_each(sets); };
  EXPECT_TRUE(holds({{1}}));
  EXPECT_TRUE(holds({{3}, {3}}));
  EXPECT_TRUE(holds({{1, 6}, {1, 6}, {1, 6}}));
  EXPECT_FALSE(holds({{3}, {3}, {3}})) << "too few";
  EXPECT_FALSE(holds({{7}, {7}})) << "more than needed";
  EXPECT_FALSE(holds({{1}, {2}})) << "not shared";
  EXPECT_FALSE(holds({{3}, {4}, {4}})) << "as many as ranks, but not for each";
}

TEST(Cores, TextThatIsNoneIsRefused) {
  for (const char* const text : {"", ",", "1,", "x", "1 2", "10000000000000000", "1,-2"}) {
    EXPECT_FALSE(parse_cores(text)) << text;
  }
  EXPECT_FALSE(parse_cores(std::string(1 << 20, ','))) << "too many words";
}

/// A made-up tree of cgroups.
class CoreQuota : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = mount() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  std::filesystem::path mount() const { return directory.path(); }

  test::TemporaryDirectory directory;
};

TEST_F(CoreQuota, IsTheLeastOfAGroupAndItsAncestors) {
  write("cpu.max", "max 100000");
  write("jobs/cpu.max", "350000 100000");
  write("jobs/mine/cpu.max", "800000 100000");
  EXPECT_EQ(core_quota("0::/jobs/mine\n", mount()), 3U);
  EXPECT_EQ(core_quota("0::/\n", mount()), std::nullopt);
}

TEST_F(CoreQuota, IsAtLeastOneCore) {
  write("cpu.max", "20000 100000");
  EXPECT_EQ(core_quota("0::/\n", mount()), 1U);
}

TEST_F(CoreQuota, IsReadFromTheFirstVersionToo) {
  write("cpu/jobs/cpu.cfs_quota_us", "200000");
  write("cpu/jobs/cpu.cfs_period_us", "100000");
  EXPECT_EQ(core_quota("5:memory:/jobs\n4:cpu,cpuacct:/jobs\n", mount()), 2U);
  write("cpu/jobs/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(core_quota("4:cpu,cpuacct:/jobs\n", mount()), std::nullopt);
}

TEST_F(CoreQuota, OfAContainerIsAtItsMount) {
  write("cpu.max", "150000 100000");
  EXPECT_EQ(core_quota("0::/not/seen/in/here\n", mount()), 1U);
}

TEST_F(CoreQuota, OfNothingReadableIsNone) {
  EXPECT_EQ(core_quota("", mount()), std::nullopt);
  write("cpu.max", "nonsense");
  EXPECT_EQ(core_quota("no colons\n0::/\n", mount()), std::nullopt);
}

}  // namespace
}  // namespace xylem::runtime
