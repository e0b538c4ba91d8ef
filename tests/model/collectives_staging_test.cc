// SPDX-License-Identifier: Apache-2.0
//
// Every staged plan is proved, and accesses the user's memory only by copies.
#include "model/plans.h"
#include "support/sanitizer.h"
#include "xylem/collectives/pipeline.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/staging.h"
#include "xylem/collectives/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace xylem::collectives {
namespace {

/// What a rank may stage: its input; all its messages; only the messages that it receives, as with
/// peers that send device memory directly; only the messages of some peers; its computed scratch.
std::vector<Staging> stagings(std::uint32_t ranks) {
  const Staging all = staged_messages(ranks);
  std::vector<bool> some(ranks);
  for (std::uint32_t rank = 1; rank < ranks; rank += 2) some[rank] = true;
  return {{.input = true},
          all,
          {true, all.sends, all.receives},
          {.receives = all.receives},
          {.input = true, .receives = all.receives},
          {.sends = some, .receives = all.receives},
          {.sends = some, .receives = some},
          {.receives = all.receives, .separates_scratch = true},
          {.input = true, .sends = some, .separates_scratch = true}};
}

bool is_in(const std::vector<bool>& ranks, std::uint32_t rank) {
  return rank < ranks.size() && ranks[rank];
}

std::string title(const Planner& planner, const Shape& shape, const Staging& staging) {
  const auto digits = [](const std::vector<bool>& ranks) {
    std::string text;
    for (const bool is_staged : ranks) text += is_staged ? '1' : '0';
    return text;
  };
  return model::title(planner, shape) + (staging.input ? ", input" : "") + ", sends " +
         digits(staging.sends) + ", receives " + digits(staging.receives) +
         (staging.separates_scratch ? ", scratch" : "");
}

std::vector<Schedule> stage_all(std::vector<Schedule> ranks, const Staging& staging) {
  for (Schedule& schedule : ranks) schedule = stage(schedule, staging);
  return ranks;
}

bool comes_after(const Schedule& plan, StepId step, StepId before) {
  if (step == before) return true;
  const auto predecessors = plan.predecessors_of(plan.steps[step]);
  return std::ranges::any_of(predecessors,
                             [&](StepId id) { return comes_after(plan, id, before); });
}

class EveryPlanner : public testing::TestWithParam<Planner> {
 protected:
  template <typename Check>
  void for_all_shapes(std::uint32_t ranks, const Check& check) const {
    const Planner& planner = GetParam();
    for (const std::uint32_t root : model::roots(planner.collective, ranks)) {
      for (const Shape& shape : model::shapes(planner, ranks, root)) {
        const auto plans = model::plan_all(planner, shape);
        for (const Staging& staging : stagings(ranks)) check(shape, plans, staging);
      }
    }
  }
};

TEST_P(EveryPlanner, IsProvenWhenItIsStaged) {
  for (const std::uint32_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64}) {
    if (test::kHasSanitizer && ranks > 17) break;
    for_all_shapes(ranks, [&](const Shape& shape, const auto& plans, const Staging& staging) {
      const Status outcome = verify(stage_all(plans, staging));
      ASSERT_TRUE(outcome) << title(GetParam(), shape, staging) << ": " << outcome.to_string();
    });
  }
}

TEST_P(EveryPlanner, TouchesOnlyScratchByWhatIsStaged) {
  for (const std::uint32_t ranks : {1, 2, 3, 5, 8}) {
    for_all_shapes(ranks, [&](const Shape& shape, const auto& plans, const Staging& staging) {
      for (const Schedule& schedule : stage_all(plans, staging)) {
        for (const Step& step : schedule.steps) {
          const auto reads = schedule.sources(step);
          const bool reads_input = std::ranges::any_of(
              reads, [](const Operand& operand) { return operand.buffer == Buffer::input; });
          const bool is_staged =
              (step.kind == StepKind::send && is_in(staging.sends, step.peer)) ||
              (step.kind == StepKind::recv && is_in(staging.receives, step.peer));
          const std::uint32_t moved = step.kind == StepKind::send ? step.first_source : step.target;
          const auto where = title(GetParam(), shape, staging);
          if (staging.input && reads_input) {
            EXPECT_EQ(step.kind, StepKind::copy) << where;
            EXPECT_EQ(schedule.operands[step.target].buffer, Buffer::scratch) << where;
          }
          if (is_staged) {
            EXPECT_EQ(schedule.operands[moved].buffer, Buffer::scratch) << where;
          }
        }
      }
    });
  }
}

TEST_P(EveryPlanner, ComputesInNoScratchThatReceives) {
  for (const std::uint32_t ranks : {1, 2, 3, 5, 8}) {
    for_all_shapes(ranks, [&](const Shape& shape, const auto& plans, const Staging& staging) {
      if (!staging.separates_scratch) return;
      for (const Schedule& schedule : stage_all(plans, staging)) {
        // For each scratch chunk: whether messages write to it, and whether computations do.
        std::vector<std::array<bool, 2>> fills(schedule.scratch.size());
        for (const Step& step : schedule.steps) {
          if (step.target == kNone) continue;
          const Operand& target = schedule.operands[step.target];
          for (std::uint32_t i = 0; i < step.chunk_count && target.buffer == Buffer::scratch; ++i) {
            fills[target.chunk + i][step.kind == StepKind::recv ? 0 : 1] = true;
          }
        }
        for (const auto& [by_messages, by_computation] : fills) {
          EXPECT_FALSE(by_messages && by_computation) << title(GetParam(), shape, staging);
        }
      }
    });
  }
}

// If an all_to_all is in place, each input chunk is copied before the output overwrites it.
TEST(Staging, OfAnAllToAllSavesTheInputBeforeItIsOverwritten) {
  for (const Planner& planner : planners()) {
    if (planner.collective != Collective::all_to_all) continue;
    for (const Staging& staging : stagings(5)) {
      if (!staging.input) continue;
      for (const Schedule& plan :
           stage_all(model::plan_all(planner, {planner.collective, 5}), staging)) {
        std::vector<StepId> copies(5, kNone);
        for (StepId id = 0; id < plan.steps.size(); ++id) {
          const Step& step = plan.steps[id];
          for (const Operand& source : plan.sources(step)) {
            if (source.buffer != Buffer::input) continue;
            std::fill_n(copies.begin() + source.chunk, step.chunk_count, id);
          }
          if (step.target == kNone || plan.operands[step.target].buffer != Buffer::output) continue;
          for (std::uint32_t i = 0; i < step.chunk_count; ++i) {
            const StepId copy = copies[plan.operands[step.target].chunk + i];
            ASSERT_NE(copy, kNone) << planner.name << ", step " << id;
            EXPECT_TRUE(comes_after(plan, id, copy)) << planner.name << ", step " << id;
          }
        }
      }
    }
  }
}

TEST_P(EveryPlanner, StaysAsItIsWhereNothingIsStaged) {
  for (const std::uint32_t ranks : {1, 2, 3, 5, 8}) {
    for (const Schedule& plan : model::plan_all(GetParam(), {GetParam().collective, ranks})) {
      EXPECT_EQ(stage(plan, {}), plan);
    }
  }
}

// Each chunk is staged through a ring of one chunk, so that scratch does not grow with the message.
TEST_P(EveryPlanner, StagesSingleChunksThroughRings) {
  for (const Schedule& plan : model::plan_all(GetParam(), {GetParam().collective, 5})) {
    const Schedule staged = stage(plan, staged_messages(5));
    const Pipeline slices = pipeline(staged);
    for (const Step& step : staged.steps) {
      if (step.kind != StepKind::send || step.chunk_count != 1) continue;
      const std::uint32_t chunk = staged.operands[step.first_source].chunk;
      if (chunk < plan.scratch.size()) continue;
      EXPECT_TRUE(slices.windowed[chunk]) << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registered,
                         EveryPlanner,
                         testing::ValuesIn(planners().begin(), planners().end()),
                         model::label);

}  // namespace
}  // namespace xylem::collectives
