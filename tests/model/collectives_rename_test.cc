// SPDX-License-Identifier: Apache-2.0
//
// Plans for ranks that are distributed over hosts in any way: they are right, and their messages
// between hosts carry no more bytes than necessary.
#include "model/plans.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/layout.h"
#include "xylem/collectives/rename.h"
#include "xylem/collectives/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace xylem::collectives {
namespace {

using Ranks = std::vector<std::uint32_t>;

TEST(Placement, PutsTheRanksOfAHostTogether) {
  struct Case {
    Ranks host, order;
    std::uint32_t per_host;
    Ranks host_sizes;
  };
  for (const Case& it : {Case{{}, {}, 5, {}},
                         {{3, 3, 3}, {}, 3, {}},
                         {{0, 0, 1, 1, 2, 2}, {}, 2, {}},
                         {{7, 7, 2, 2}, {}, 2, {}},
                         {{0, 1, 0, 1}, {0, 2, 1, 3}, 2, {}},
                         {{0, 0, 1, 1, 0, 0}, {0, 1, 4, 5, 2, 3}, 1, {4, 2}},
                         {{0, 0, 1, 1, 2}, {}, 1, {2, 2, 1}},
                         {{5, 9, 2}, {}, 1, {}}}) {
    const auto ranks = it.host.empty() ? 5 : static_cast<std::uint32_t>(it.host.size());
    const Placement found = placement(it.host, ranks);
    EXPECT_EQ(found.order, it.order);
    EXPECT_EQ(found.per_host, it.per_host);
    EXPECT_EQ(found.host_sizes, it.host_sizes);
  }
  const Ranks host{0, 0, 1, 1, 1};
  EXPECT_EQ(placement(host, 5, 3).order, (Ranks{3, 4, 2, 0, 1})) << "the root is at place 0";
  EXPECT_EQ(placement(host, 5, 3).host_sizes, (Ranks{3, 2}));
}

/// Hosts of `ranks` ranks: dealt to the hosts in turn, of unequal sizes, or at random.
std::vector<Ranks> distributions(std::uint32_t ranks) {
  std::mt19937 random(ranks);
  Ranks dealt, uneven, any;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    dealt.push_back(rank % 3);
    uneven.push_back(rank < 3 ? 0 : rank < 5 ? 1 : 2);
    any.push_back(random() % 4);
  }
  return {dealt, uneven, any};
}

class Renamed : public testing::TestWithParam<Planner> {};

TEST_P(Renamed, PlansAreProven) {
  const Planner& planner = GetParam();
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 6U, 8U, 13U}) {
    for (const Ranks& host : distributions(ranks)) {
      CostModel model = assumed_costs();
      model.host = host;
      Chooser chooser(model);
      for (const std::uint32_t root : model::roots(planner.collective, ranks)) {
        const auto choice =
            chooser.choose({planner.collective, ranks, root}, 64 << 10, planner.name);
        ASSERT_TRUE(choice.is_ok()) << choice.status().to_string();
        std::vector<Schedule> plans;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(choice->plan(rank));
        EXPECT_EQ(plans.back().rank, ranks - 1);
        EXPECT_EQ(plans.front().shape.root, root);
        const Status outcome = verify(plans);
        ASSERT_TRUE(outcome.is_ok())
            << model::title(planner, choice->shape) << ": " << outcome.to_string();
      }
    }
  }
}

TEST_P(Renamed, OnlyPlannersThatSaySoMoveRanges) {
  const Planner& planner = GetParam();
  if (has_free_parts(planner.collective)) return;
  std::uint32_t longest = 0;
  for (std::uint32_t ranks = 1; ranks <= 17; ++ranks) {
    for (const std::uint32_t root : model::roots(planner.collective, ranks)) {
      for (const Shape& shape : model::shapes(planner, ranks, root)) {
        for (const Schedule& plan : model::plan_all(planner, shape)) {
          for (const Step& step : plan.steps) longest = std::max(longest, step.chunk_count);
        }
      }
    }
  }
  EXPECT_EQ(longest > 1, planner.moves_ranges);
}

INSTANTIATE_TEST_SUITE_P(Registered,
                         Renamed,
                         testing::ValuesIn(planners().begin(), planners().end()),
                         model::label);

/// The blocks that enter and leave each host.
struct HostTraffic {
  std::uint64_t in = 0, out = 0;
};
std::map<std::uint32_t, HostTraffic> traffic(const Choice& choice,
                                             const Ranks& host,
                                             std::uint64_t block) {
  std::map<std::uint32_t, HostTraffic> hosts;
  for (std::uint32_t rank = 0; rank < host.size(); ++rank) {
    const Schedule plan = choice.plan(rank);
    const Layout layout(plan, {.count = block});
    for (const Step& step : plan.steps) {
      if (step.kind != StepKind::send || host[rank] == host[step.peer]) continue;
      const Operand& source = plan.operands[step.first_source];
      const auto bytes = layout.extent(source.buffer, source.chunk, step.chunk_count).bytes;
      hosts[host[rank]].out += bytes;
      hosts[host[step.peer]].in += bytes;
    }
  }
  return hosts;
}

// The least bytes that must enter a host, and in an all_reduce and a reduce_scatter leave it.
TEST(HierarchicalRing, MovesTheLeastBytesBetweenUnequalHosts) {
  const Ranks host{0, 0, 0, 1, 1, 2};
  const Ranks dealt{0, 1, 2, 0, 1, 0};
  constexpr std::uint64_t kBlock = 9 << 10;
  constexpr std::uint32_t kHosts = 3, kRanks = 6;
  constexpr std::uint64_t kSizes[] = {3, 2, 1};
  for (const Ranks& where : {host, dealt}) {
    CostModel model = assumed_costs();
    model.host = where;
    Chooser chooser(model);
    const auto of = [&](Collective collective) {
      const auto choice = chooser.choose({collective, kRanks, 0}, kBlock, "hierarchical_ring");
      EXPECT_TRUE(choice.is_ok());
      return traffic(*choice, where, kBlock);
    };
    for (const auto& [at, moved] : of(Collective::all_reduce)) {
      EXPECT_EQ(moved.in, 2 * kBlock * (kHosts - 1) / kHosts);
      EXPECT_EQ(moved.out, 2 * kBlock * (kHosts - 1) / kHosts);
    }
    for (const auto& [at, moved] : of(Collective::all_gather)) {
      EXPECT_EQ(moved.in, kBlock * (kRanks - kSizes[at]));
      EXPECT_LE(moved.out, kBlock * (kRanks - 1));
    }
    for (const auto& [at, moved] : of(Collective::reduce_scatter)) {
      EXPECT_EQ(moved.out, kBlock * (kRanks - kSizes[at]));
      EXPECT_LE(moved.in, kBlock * (kRanks - 1));
    }
  }
}

// A chain crosses each link between hosts once, wherever its root is.
TEST(Ring, OfAnyRootEntersEachHostOnce) {
  const Ranks host{0, 1, 2, 0, 1, 2, 1};
  CostModel model = assumed_costs();
  model.host = host;
  Chooser chooser(model);
  for (std::uint32_t root = 0; root < host.size(); ++root) {
    const auto choice = chooser.choose({Collective::broadcast, 7, root}, 1 << 20, "ring");
    ASSERT_TRUE(choice.is_ok());
    for (const auto& [at, moved] : traffic(*choice, host, 1 << 20)) {
      EXPECT_EQ(moved.in, at == host[root] ? 0 : 1 << 20);
      EXPECT_LE(moved.out, 1 << 20);
    }
  }
}

}  // namespace
}  // namespace xylem::collectives
