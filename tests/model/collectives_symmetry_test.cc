// SPDX-License-Identifier: Apache-2.0
//
// Proofs and estimates that use symmetry give the same results as those that examine all ranks.
#include "model/mutations.h"
#include "model/plans.h"
#include "xylem/collectives/choose.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>

namespace xylem::collectives {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Planner> symmetric_planners() {
  std::vector<Planner> result;
  for (const Planner& planner : planners()) {
    if (planner.symmetry != nullptr) result.push_back(planner);
  }
  return result;
}

Status verify_by(const Symmetry& symmetry, const std::vector<Schedule>& ranks) {
  const auto backwards = [](std::uint32_t parts, const std::function<void(std::uint32_t)>& part) {
    while (parts > 0) part(--parts);
  };
  return verify(
      symmetry, [&](std::uint32_t rank) { return ranks[rank]; }, backwards);
}

// The planner's symmetry, and its sub-symmetries, which map whole hosts to hosts.
std::vector<Symmetry> symmetries(const Planner& planner, const Shape& shape) {
  std::vector<Symmetry> result = {planner.symmetry(shape)};
  for (std::uint32_t ranks = 2; ranks < shape.ranks; ++ranks) {
    if (auto part = result[0].with_representatives(ranks)) result.push_back(*std::move(part));
  }
  return result;
}

class BySymmetry : public testing::TestWithParam<Planner> {};

TEST_P(BySymmetry, PlansAreProven) {
  const Planner& planner = GetParam();
  for (const std::uint32_t ranks : model::ranks_to_prove(40)) {
    for (const Shape& shape : model::shapes(planner, ranks, 0)) {
      for (const Symmetry& symmetry : symmetries(planner, shape)) {
        const Status outcome = verify_by(symmetry, model::plan_all(planner, shape));
        ASSERT_TRUE(outcome.is_ok())
            << model::title(planner, shape) << ", " << symmetry.representatives()
            << " representatives: " << outcome.to_string();
      }
    }
  }
}

// Maps a schedule by `symmetry` to that of another rank.
Schedule image(const Schedule& schedule, const Symmetry& symmetry, std::uint32_t shift) {
  Schedule result = schedule;
  const auto block = [&](std::uint32_t of) {
    return symmetry.image_of_block(schedule.shape, of, shift);
  };
  result.rank = symmetry.image(schedule.rank, shift);
  for (std::uint32_t& held : result.scratch) held = block(held);
  for (Step& step : result.steps) {
    if (step.peer != kNone) step.peer = symmetry.image(step.peer, shift);
    for (std::uint32_t i = 0; i <= step.source_count; ++i) {
      const std::uint32_t at = i == 0 ? step.target : step.first_source + i - 1;
      if (at == kNone) continue;
      Operand& operand = result.operands[at];
      operand.rank = symmetry.image(operand.rank, shift);
      if (operand.buffer == Buffer::scratch) {
        const auto end = std::size_t{operand.chunk} + step.chunk_count;
        if (end > result.scratch.size()) continue;  // Only mutants have such operands.
        const auto run = result.scratch.begin();
        std::sort(run + operand.chunk, run + static_cast<std::ptrdiff_t>(end));
      } else if (chunk_count(schedule, schedule.rank, operand.buffer) > 1) {
        std::uint32_t first = kNone;
        for (std::uint32_t k = 0; k < step.chunk_count; ++k) {
          first = std::min(first, block(operand.chunk + k));
        }
        operand.chunk = first;
      }
    }
  }
  return result;
}

// If all ranks have the same mutation, the proof by symmetry must have the same result as the proof
// of all ranks. If one rank has a mutation, the proof must find that the plan is not symmetric.
TEST_P(BySymmetry, MutantsAreJudgedAsByTheProofOfAllRanks) {
  const Planner& planner = GetParam();
  std::mt19937_64 random(20261122);
  int proven = 0, rejected = 0, refused = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    const std::uint32_t ranks = std::array{2U, 3U, 4U, 5U, 6U, 8U}[random() % 6];
    const Shape shape = model::draw_shape(planner, ranks, random);
    const auto all = symmetries(planner, shape);
    const Symmetry& symmetry = all[random() % all.size()];
    const auto plan = model::plan_all(planner, shape);
    const auto mutation = model::kMutations[random() % model::kMutations.size()];
    const auto mutant = model::mutate(plan, mutation, random);
    if (!mutant) continue;
    ASSERT_FALSE(symmetry.representatives() < ranks && verify_by(symmetry, *mutant))
        << model::title(planner, shape) << ": proved although one rank breaks the symmetry";
    std::uint32_t changed = 0;
    while ((*mutant)[changed] == plan[changed]) ++changed;
    // Every rank gets the schedule that the symmetry makes from the mutated one.
    std::vector<Schedule> alike = plan;
    const std::uint32_t home = symmetry.inverse(symmetry.shift(changed));
    const Schedule model = image((*mutant)[changed], symmetry, home);
    for (std::uint32_t rank = symmetry.representative(changed); rank < ranks;
         rank += symmetry.representatives()) {
      alike[rank] = image(model, symmetry, symmetry.shift(rank));
    }
    const Status by_symmetry = verify_by(symmetry, alike);
    const Status of_all = verify(alike);
    ASSERT_TRUE(of_all || !by_symmetry)
        << model::title(planner, shape) << ", " << symmetry.representatives()
        << " representatives, " << model::name(mutation) << ": proven by symmetry, but "
        << of_all.to_string() << '\n'
        << print(alike[0]);
    proven += by_symmetry ? 1 : 0;
    rejected += !of_all ? 1 : 0;
    refused += of_all && !by_symmetry ? 1 : 0;
  }
  std::cout << "by symmetry " << proven << " proven, " << rejected << " rejected by both, "
            << refused << " right mutants not proved\n";
  // In an all_to_all every step is necessary, so all mutants are wrong.
  EXPECT_TRUE(proven > 100 || planner.collective == Collective::all_to_all) << proven;
  EXPECT_GT(rejected, 100);
}

TEST_P(BySymmetry, TimesAreThoseOfAllRanks) {
  const Planner& planner = GetParam();
  CostModel model;
  model.local = {2, 10};
  model.remote = {10, 2};
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U, 12U}) {
    for (std::uint32_t per_host = 1; per_host <= ranks; ++per_host) {
      if (ranks % per_host != 0) continue;
      const Shape shape{planner.collective, ranks, 0, planner.takes_hosts ? per_host : 1};
      const auto plan = model::plan_all(planner, shape);
      model.host.clear();
      for (std::uint32_t rank = 0; rank < ranks; ++rank) model.host.push_back(rank / per_host);
      const auto symmetry = per_host == ranks
                                ? planner.symmetry(shape)
                                : planner.symmetry(shape).with_representatives(per_host);
      ASSERT_TRUE(symmetry) << model::title(planner, shape);
      const std::span representatives(plan.begin(), symmetry->representatives());
      for (const std::uint64_t bytes : {std::uint64_t{64} << 10, std::uint64_t{48} << 20}) {
        model.network.clear();
        if (bytes % 3 == 0) {
          model.network = {{.port = model.host, .rate_GBps = std::vector(ranks / per_host, 3.0)}};
        }
        const Counts counts{.count = bytes};
        const double expected = estimate_us(plan, counts, model);
        EXPECT_NEAR(estimate_us(representatives, *symmetry, counts, model), expected,
                    0.02 * expected)
            << model::title(planner, shape) << ", " << bytes << " bytes";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Registered, BySymmetry, testing::ValuesIn(symmetric_planners()), [](const auto& tested) {
      return std::string(name(tested.param.collective)) + "_" + std::string(tested.param.name);
    });

TEST(VerifySymmetry, NamesTheFirstRankThatDoesOtherwise) {
  const Planner* ring = find_planner(Collective::all_reduce, "ring");
  const Shape shape{Collective::all_reduce, 8, 0};
  auto plan = model::plan_all(*ring, shape);
  plan[5].steps[4].channel = 1;
  plan[6].steps[1].peer = 2;
  EXPECT_THAT(
      std::string(verify_by(ring->symmetry(shape), plan).message()),
      StartsWith("symmetry: rank 5, step 4 (recv): is not the image of rank 0's (recv ch0"));
  plan[3].steps.pop_back();
  EXPECT_THAT(std::string(verify_by(ring->symmetry(shape), plan).message()),
              HasSubstr("the schedule of rank 3 is not like that of rank 0"));
}

TEST(VerifySymmetry, RefusesWhatItCannotProve) {
  const auto refusal = [](Collective collective, std::string_view algorithm, Symmetry symmetry) {
    const Planner* planner = find_planner(collective, algorithm);
    const Shape shape{collective, symmetry.ranks(), 0};
    return std::string(verify_by(symmetry, model::plan_all(*planner, shape)).message());
  };
  const Symmetry turns({{.radix = 4, .rank_stride = 1, .block_stride = 1}});
  EXPECT_THAT(refusal(Collective::broadcast, "ring", turns), HasSubstr("not proven by symmetry"));
  EXPECT_THAT(refusal(Collective::barrier, "dissemination", turns),
              HasSubstr("not proven by symmetry"));
  // The plan has two blocks.
  EXPECT_THAT(refusal(Collective::all_reduce, "double_binary_tree", turns),
              HasSubstr("do not fall into its cycles"));
  const Symmetry still({{.radix = 4, .rank_stride = 1}});
  EXPECT_THAT(refusal(Collective::all_reduce, "double_binary_tree", still),
              StartsWith("symmetry: "));
  EXPECT_THAT(refusal(Collective::all_reduce, "ring", still), StartsWith("symmetry: "));
}

TEST(VerifySymmetry, LooksAlsoAtWhatNoStepNames) {
  const Planner* ring = find_planner(Collective::reduce_scatter, "ring");
  const Shape shape{Collective::reduce_scatter, 4, 0};
  // Operands in other ranks' memory change the dependencies between slices, even if no step uses
  // the operands.
  auto foreign = model::plan_all(*ring, shape);
  for (Schedule& schedule : foreign) schedule.operands.push_back({3, 0, Buffer::input});
  EXPECT_THAT(std::string(verify_by(ring->symmetry(shape), foreign).message()),
              HasSubstr("rank 0 names the memory of another rank"));
  for (Schedule& schedule : foreign) schedule.operands.back().rank = schedule.rank;
  foreign[2].operands.back().rank = 1;
  EXPECT_THAT(std::string(verify_by(ring->symmetry(shape), foreign).message()),
              HasSubstr("the schedule of rank 2 is not like that of rank 0"));
  auto unused = model::plan_all(*ring, shape);
  for (Schedule& schedule : unused) schedule.scratch.push_back(schedule.rank == 2 ? 123456789 : 0);
  EXPECT_THAT(std::string(verify_by(ring->symmetry(shape), unused).message()),
              HasSubstr("rank 0: no step names scratch["));
}

TEST(Symmetry, MovesDigitsApart) {
  // 3 hosts of 2 ranks. Block numbers run across hosts first.
  const Symmetry group({{.radix = 2, .rank_stride = 1, .block_stride = 3},
                        {.radix = 3, .rank_stride = 2, .block_stride = 1}});
  EXPECT_EQ(group.ranks(), 6);
  EXPECT_EQ(group.representatives(), 1);
  EXPECT_EQ(group.image(1, 1), 0);
  EXPECT_EQ(group.image(5, 3), 0);
  EXPECT_EQ(group.inverse(3), 5);
  const Shape shape{Collective::all_reduce, 6, 0, 2};
  EXPECT_EQ(group.image_of_block(shape, 2, 2), 0);
  EXPECT_EQ(group.image_of_block(shape, 2, 1), 5);
  for (std::uint32_t shift = 0; shift < 6; ++shift) {
    std::vector<std::uint32_t> ranks(6), parts(12);
    group.rank_images(ranks, shift);
    group.part_images(parts, shift);
    for (std::uint32_t i = 0; i < 12; ++i) {
      if (i < 6) {
        EXPECT_EQ(ranks[i], group.image(i, shift));
      }
      EXPECT_EQ(parts[i], group.image_of_block(shape, i, shift));
    }
    EXPECT_EQ(group.image(shift, group.inverse(shift)), 0);
  }
  const auto hosts = group.with_representatives(2);
  ASSERT_TRUE(hosts);
  EXPECT_EQ(hosts->representatives(), 2);
  EXPECT_FALSE(group.with_representatives(4));
}

TEST(Symmetry, CutsALongCycle) {
  const Symmetry ring({{.radix = 12, .rank_stride = 1, .block_stride = 1}});
  const auto hosts = ring.with_representatives(4);
  ASSERT_TRUE(hosts);
  EXPECT_EQ(hosts->ranks(), 12);
  EXPECT_EQ(hosts->image(10, 4), 2);
  EXPECT_FALSE(ring.with_representatives(5));
  EXPECT_FALSE(ring.with_representatives(12));
}

}  // namespace
}  // namespace xylem::collectives
