// SPDX-License-Identifier: Apache-2.0
//
// For each planner, the schedules are proved for many numbers of ranks and roots. The tests also
// check that planners are pure functions.
#include "model/plans.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/verify.h"

#include <gtest/gtest.h>

#include <set>

namespace xylem::collectives {
namespace {

using model::plan_all;

// One test case per planner, so that test shards divide the work.
class EveryPlanner : public testing::TestWithParam<Planner> {
 protected:
  void expect_proven(std::uint32_t ranks) const {
    const Planner& planner = GetParam();
    for (const std::uint32_t root : model::roots(planner.collective, ranks)) {
      for (const Shape& shape : model::shapes(planner, ranks, root)) {
        const Status outcome = verify(plan_all(planner, shape));
        ASSERT_TRUE(outcome.is_ok()) << model::title(planner, shape) << ": " << outcome.to_string();
      }
    }
  }
};

TEST_P(EveryPlanner, IsProvenFor1To64Ranks) {
  for (const std::uint32_t ranks : model::ranks_to_prove(64)) expect_proven(ranks);
}

TEST_P(EveryPlanner, IsProvenFor127Ranks) { expect_proven(127); }
TEST_P(EveryPlanner, IsProvenFor128Ranks) { expect_proven(128); }
TEST_P(EveryPlanner, IsProvenFor257Ranks) { expect_proven(257); }

TEST_P(EveryPlanner, PlansTheSameTwiceAndSaysItsName) {
  const Planner& planner = GetParam();
  const Shape shape{planner.collective, 6, 0};
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    const Schedule plan = planner.plan(shape, rank);
    EXPECT_EQ(plan, planner.plan(shape, rank));
    EXPECT_EQ(plan.algorithm, planner.name);
    EXPECT_EQ(plan.shape, shape);
    EXPECT_EQ(plan.rank, rank);
  }
}

INSTANTIATE_TEST_SUITE_P(Registered,
                         EveryPlanner,
                         testing::ValuesIn(planners().begin(), planners().end()),
                         model::label);
// The ranks of these plans are devices of one host.
class EveryMappedPlanner : public EveryPlanner {};

TEST_P(EveryMappedPlanner, IsProvenFor1To32Ranks) {
  for (std::uint32_t ranks = 1; ranks <= 32; ++ranks) expect_proven(ranks);
}

INSTANTIATE_TEST_SUITE_P(Mapped,
                         EveryMappedPlanner,
                         testing::ValuesIn(mapped_planners().begin(), mapped_planners().end()),
                         model::label);

TEST(Planners, CoverEveryCollectiveUnderDistinctNames) {
  std::set<Collective> covered;
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Planner& planner : planners()) {
    covered.insert(planner.collective);
    EXPECT_TRUE(names.emplace(planner.collective, planner.name).second) << planner.name;
    EXPECT_FALSE(planner.summary.empty()) << planner.name;
    EXPECT_EQ(find_planner(planner.collective, planner.name)->plan, planner.plan);
  }
  EXPECT_EQ(covered.size(), kCollectiveCount);
  EXPECT_EQ(find_planner(Collective::barrier, "ring"), nullptr);
}

TEST(MappedPlanners, CoverEveryCollectiveUnderANameOfTheirOwn) {
  for (std::size_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    EXPECT_EQ(mapped_planner(collective).collective, collective);
    EXPECT_EQ(mapped_planner(collective).name, "mapped");
    EXPECT_EQ(find_planner(collective, "mapped"), nullptr) << name(collective);
  }
}

}  // namespace
}  // namespace xylem::collectives
