// SPDX-License-Identifier: Apache-2.0
//
// The engine without a runtime. All ranks run in one thread over loopback, which completes messages
// in an order drawn from a seed.
#include "support/engine_ranks.h"
#include "xylem/collectives/planner.h"
#include "xylem/transport/loopback.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Collective;

class EngineOver : public testing::TestWithParam<std::uint32_t> {
 protected:
  explicit EngineOver(std::uint64_t seed = 1) : fabric({seed, /*eager_bytes=*/512}) {
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank)
      ranks.emplace_back(rank, fabric.attach());
    for (Rank& rank : ranks) rank.connect(ranks);
  }

  static std::shared_ptr<const Program> program(const collectives::Planner& planner,
                                                std::uint32_t rank,
                                                std::uint64_t count) {
    ProgramOptions options;
    options.counts.count = count;
    options.counts.element_bytes = sizeof(std::uint32_t);
    options.slice_bytes = 256;
    options.window = 3;
    options.arithmetic.reduce = &add;
    auto made = compile(planner.plan({planner.collective, GetParam()}, rank), options);
    EXPECT_TRUE(made) << made.status().message();
    return *made;
  }
  /// Starts an all_reduce of `count` numbers on all ranks.
  void all_reduce(const collectives::Planner& planner,
                  std::uint64_t count,
                  std::uint64_t sequence) {
    inputs.clear();
    outputs.clear();
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
      inputs.emplace_back(count);
      std::iota(inputs.back().begin(), inputs.back().end(), 1000 * rank);
      outputs.emplace_back(count);
    }
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
      ranks[rank].start(program(planner, rank, count), sequence, inputs[rank], outputs[rank]);
    }
    ASSERT_TRUE(turn_until_ended(ranks));
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
      const TestExecution& execution = ranks[rank].execution;
      ASSERT_TRUE(execution.outcome) << planner.name << ": " << execution.outcome.message();
      EXPECT_EQ(execution.ended, 1U);
      EXPECT_EQ(execution.unreferenced_times, 1U);
      EXPECT_EQ(execution.outstanding, 0U);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto n = GetParam();
        ASSERT_EQ(outputs[rank][i], n * i + 1000 * (n * (n - 1) / 2))
            << planner.name << " at " << i;
      }
    }
  }
  // Declared before `ranks`, since the buffers must outlive the executions if a test ends early.
  std::vector<std::vector<std::uint32_t>> inputs, outputs;
  transport::LoopbackFabric fabric;
  std::deque<Rank> ranks;
};

TEST_P(EngineOver, EveryAllReduceIsRightFromCallToCall) {
  std::uint64_t sequence = 0;
  for (const collectives::Planner& planner : collectives::planners()) {
    if (planner.collective != Collective::all_reduce || planner.takes_hosts) continue;
    for (const std::uint64_t count : {1, 70, 2000}) all_reduce(planner, count, sequence++);
  }
  EXPECT_GT(sequence, 6U);
}

TEST_P(EngineOver, AnExecutionThatFailsEndsOnceAndServesTheNextCall) {
  const collectives::Planner& ring = *collectives::find_planner(Collective::all_reduce, "ring");
  constexpr std::uint64_t kCount = 2000;
  // Each rank fails after a few turns. At this time, some slices are ready, some wait and some are
  // under way.
  for (unsigned turns = 0; turns < 12; ++turns) {
    outputs.assign(GetParam(), std::vector<std::uint32_t>(kCount));
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
      ranks[rank].start(program(ring, rank, kCount), 2 * turns, outputs[rank], outputs[rank]);
    }
    for (unsigned i = 0; i < turns; ++i) {
      for (Rank& rank : ranks) rank.turn();
    }
    for (Rank& rank : ranks) rank.engine.fail(rank.execution, failure(Code::cancelled, "the test"));
    ASSERT_TRUE(turn_until_ended(ranks));
    for (const Rank& rank : ranks) {
      EXPECT_EQ(rank.execution.ended, 1U);
      EXPECT_EQ(rank.execution.outstanding, 0U);
      EXPECT_EQ(rank.engine.active(), nullptr);
      if (GetParam() > 1) {
        EXPECT_EQ(rank.execution.outcome.code(), Code::cancelled);
      }
    }
    all_reduce(ring, kCount, 2 * turns + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineOver, testing::Values(1, 2, 3, 5, 8));

}  // namespace
}  // namespace xylem::execution
