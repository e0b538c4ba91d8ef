// SPDX-License-Identifier: Apache-2.0
//
// Compares the schedules of every planner with their text in tests/golden/schedules, for 5 ranks
// with root 1, or for 3 hosts of 2 ranks. To accept a change, copy the file that the failure names
// over the golden file.
#include "model/plans.h"
#include "xylem/collectives/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

namespace xylem::collectives {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(XYLEM_TEST_DATA) / "golden" / "schedules";

std::string file_name(const Planner& planner) {
  return std::string(name(planner.collective)) + "-" + std::string(planner.name) + ".txt";
}

std::string printed(const Planner& planner) {
  Shape shape{planner.collective, 5, has_root(planner.collective) ? 1U : 0U};
  if (planner.takes_hosts) std::tie(shape.ranks, shape.per_host) = std::pair(6, 2);
  std::string text;
  for (const Schedule& schedule : model::plan_all(planner, shape)) {
    text += (text.empty() ? "" : "\n") + print(schedule);
  }
  return text;
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class GoldenSchedules : public testing::TestWithParam<Planner> {};

TEST_P(GoldenSchedules, AreAsRecorded) {
  const std::string now = printed(GetParam());
  const std::filesystem::path recorded = kFolder / file_name(GetParam());
  if (now == read(recorded)) return;
  const std::filesystem::path written =
      std::filesystem::path(testing::TempDir()) / file_name(GetParam());
  std::ofstream(written) << now;
  ADD_FAILURE() << "the plan differs from " << recorded << "; it is now in " << written << ":\n"
                << now;
}

INSTANTIATE_TEST_SUITE_P(Registered,
                         GoldenSchedules,
                         testing::ValuesIn(planners().begin(), planners().end()),
                         [](const auto& tested) {
                           return std::string(name(tested.param.collective)) + "_" +
                                  std::string(tested.param.name);
                         });

TEST(GoldenFolder, HoldsNothingElse) {
  std::set<std::string> expected, found;
  for (const Planner& planner : planners()) expected.insert(file_name(planner));
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    found.insert(entry.path().filename().string());
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace xylem::collectives
