// SPDX-License-Identifier: Apache-2.0
//
// Tests the verifier with mutants of correct plans. If the verifier accepts a mutant, the mutant
// must give correct results in a hundred executions with different orders, sizes, slots and
// aliasing.
#include "model/executor.h"
#include "model/mapped_plans.h"
#include "model/mutations.h"
#include "model/plans.h"
#include "xylem/collectives/text.h"
#include "xylem/collectives/verify.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>

namespace xylem::collectives {
namespace {

using model::Executor;
using model::Mutation;

constexpr int kMutantsPerClass = 600;
constexpr int kRuns = 100;

// Every planner, and the hand-written plans over mapped memory. Each is tested with a few numbers
// of ranks.
std::vector<Planner> subjects() {
  std::vector<Planner> all(planners().begin(), planners().end());
  all.insert(all.end(), mapped_planners().begin(), mapped_planners().end());
  all.push_back({"read_inputs", Collective::all_reduce, "", model::read_inputs});
  all.push_back({"read_scratch", Collective::all_reduce, "", model::read_scratch});
  all.push_back({"put_inputs", Collective::all_reduce, "", model::put_inputs});
  return all;
}

Shape draw_shape(const Planner& planner, std::mt19937_64& random) {
  constexpr std::uint32_t kRanks[] = {2, 3, 4, 5, 6, 8};
  const std::uint32_t ranks = kRanks[random() % std::size(kRanks)];
  return model::draw_shape(planner, ranks, random);
}

std::string printed(const std::vector<Schedule>& ranks) {
  std::string text;
  for (const Schedule& schedule : ranks) text += print(schedule);
  return text;
}

std::optional<std::string> first_failure(const std::vector<Schedule>& ranks,
                                         std::uint64_t seed,
                                         int runs) {
  Executor executor(ranks);
  for (int i = 0; i < runs; ++i) {
    if (auto problem = executor.run(seed + static_cast<std::uint64_t>(i))) return problem;
  }
  return std::nullopt;
}

class Mutants : public testing::TestWithParam<Mutation> {};

TEST_P(Mutants, AreRejectedOrRight) {
  const int flag = GTEST_FLAG_GET(random_seed);
  const auto seed = static_cast<std::uint64_t>(flag != 0 ? flag : 20261121);
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(GetParam()));
  const std::vector<Planner> all = subjects();
  std::map<std::string, int> rejected;  // The key is the claim that the verifier refuted.
  int made = 0, equivalent = 0, failures_seen = 0;
  for (std::size_t turn = 0; made < kMutantsPerClass && turn < 100000; ++turn) {
    const Planner& planner = all[turn % all.size()];
    const Shape shape = draw_shape(planner, random);
    const auto mutant = model::mutate(model::plan_all(planner, shape), GetParam(), random);
    if (!mutant) continue;
    ++made;
    const Status outcome = verify(*mutant);
    const std::uint64_t run_seed = random();
    if (outcome) {
      ++equivalent;
      const auto problem = first_failure(*mutant, run_seed, kRuns);
      ASSERT_FALSE(problem) << "accepted, but wrong (seed " << seed << "): " << *problem << '\n'
                            << printed(*mutant);
      continue;
    }
    const std::string claim(outcome.message().substr(0, outcome.message().find(':')));
    ++rejected[claim];
    if (claim != "form" && first_failure(*mutant, run_seed, 20)) ++failures_seen;
  }
  std::cout << model::name(GetParam()) << ": seed " << seed << ", " << made << " mutants";
  for (const auto& [claim, count] : rejected)
    std::cout << ", " << count << " rejected by " << claim;
  std::cout << " (" << failures_seen << " of those beyond form seen to fail in 20 runs), "
            << equivalent << " equivalent\n";
  EXPECT_GE(made, 500);
}

INSTANTIATE_TEST_SUITE_P(OfEveryPlanner,
                         Mutants,
                         testing::ValuesIn(model::kMutations),
                         [](const auto& tested) {
                           std::string text(model::name(tested.param));
                           std::replace(text.begin(), text.end(), ' ', '_');
                           return text;
                         });

class Execution : public testing::TestWithParam<Planner> {};

TEST_P(Execution, GivesRightResultsInEveryOrder) {
  std::mt19937_64 random(3);
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 6U, 8U, 11U}) {
    for (const std::uint32_t root : model::roots(GetParam().collective, ranks)) {
      for (const Shape& shape : model::shapes(GetParam(), ranks, root)) {
        const auto plan = model::plan_all(GetParam(), shape);
        ASSERT_TRUE(verify(plan)) << verify(plan).to_string() << '\n' << printed(plan);
        const auto problem = first_failure(plan, random(), kRuns);
        ASSERT_FALSE(problem) << *problem << '\n' << printed(plan);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Subjects, Execution, testing::ValuesIn(subjects()), [](const auto& tested) {
      return std::string(name(tested.param.collective)) + "_" + std::string(tested.param.name);
    });

}  // namespace
}  // namespace xylem::collectives
