// SPDX-License-Identifier: Apache-2.0
//
// The engine by itself: all ranks in one thread, over loopback, which completes in an order drawn
// from a seed. No runtime is linked.
#include "xylem/collectives/planner.h"
#include "xylem/execution/engine.h"
#include "xylem/transport/loopback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Buffer;
using collectives::Collective;

/// Sums 32-bit integers.
void add(void* target,
         const void* const* sources,
         std::size_t source_count,
         std::size_t count,
         Finish /*finish*/) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t s = 0; s < source_count; ++s) {
      sum += static_cast<const std::uint32_t*>(sources[s])[i];
    }
    static_cast<std::uint32_t*>(target)[i] = sum;
  }
}

struct TestExecution final : Execution {
  using Execution::first_reference;
  using Execution::renew;
  Status outcome;
  unsigned ended = 0, unreferenced_times = 0;

 private:
  void unreferenced() noexcept override { ++unreferenced_times; }
};

/// One rank: an engine, a transport and an execution that is used again and again.
class Rank final : public EngineListener {
 public:
  Rank(std::uint32_t rank, std::unique_ptr<transport::Transport> transport)
      : transport_(std::move(transport)) {
    peers_.rank = rank;
  }
  /// After all ranks have been made.
  void connect(const std::deque<Rank>& ranks) {
    for (const Rank& other : ranks) {
      const auto can = transport_->capabilities();
      peers_.links.push_back({transport_.get(),
                              transport_->connect(other.transport_->address()).value(),
                              can.view_bytes, can.inline_bytes});
    }
  }
  void start(const std::shared_ptr<const Program>& program,
             std::uint64_t sequence,
             std::span<const std::uint32_t> input,
             std::span<std::uint32_t> output) {
    execution.renew();
    // Nothing of the call before is left, which may have failed with steps to be looked at.
    EXPECT_TRUE(execution.run.ready.empty() && execution.run.later.empty());
    EXPECT_TRUE(execution.run.arrived.empty() && execution.run.views.empty());
    EXPECT_FALSE(execution.run.is_lost || execution.is_busy || execution.has_ended);
    execution.first_reference();
    execution.ended = execution.unreferenced_times = 0;
    execution.outcome = failure(Code::invalid_argument, "has not ended");
    execution.peers = &peers_;
    execution.sequence = sequence;
    execution.run.kept = program;
    execution.run.program = program.get();
    auto& base = execution.run.base;
    // Programs do not write their input.
    base[static_cast<int>(Buffer::input)] =
        reinterpret_cast<std::byte*>(const_cast<std::uint32_t*>(input.data()));
    base[static_cast<int>(Buffer::output)] = reinterpret_cast<std::byte*>(output.data());
    base[static_cast<int>(Buffer::scratch)] = execution.run.scratch.reserve(program->scratch_bytes);
    engine.activate(execution);
    engine.start(execution);
  }
  unsigned turn() { return transport_->progress() + engine.run(); }

  void on_ended(Execution& ended, Status outcome) override {
    EXPECT_EQ(&ended, &execution);
    ++execution.ended;
    execution.outcome = std::move(outcome);
    execution.release();
  }
  void on_wire_error(Execution& failed, std::uint32_t peer, Code code) override {
    engine.fail(failed, failure(code, "from rank " + std::to_string(peer)));
  }
  void on_body(Message& /*message*/) override { ADD_FAILURE() << "no message was posted"; }

  Engine engine{*this};
  TestExecution execution;

 private:
  std::unique_ptr<transport::Transport> transport_;
  Peers peers_;
};

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
    options.kernel = &add;
    auto made = compile(planner.plan({planner.collective, GetParam()}, rank), options);
    EXPECT_TRUE(made) << made.status().message();
    return *made;
  }
  /// An all_reduce of `count` numbers on all ranks.
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
    turn_until_ended();
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
  void turn_until_ended() {
    constexpr unsigned kMostTurns = 1'000'000;
    for (unsigned turns = 0; turns < kMostTurns; ++turns) {
      bool all = true;
      for (Rank& rank : ranks) {
        rank.turn();
        all = all && rank.execution.ended > 0;
      }
      if (all) return;
    }
    FAIL() << "not ended after " << kMostTurns << " turns";
  }

  // They outlive the executions, also where a test ends early.
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
  // Each rank fails after some turns, with slices ready, waiting and under way.
  for (unsigned turns = 0; turns < 12; ++turns) {
    outputs.assign(GetParam(), std::vector<std::uint32_t>(kCount));
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
      ranks[rank].start(program(ring, rank, kCount), 2 * turns, outputs[rank], outputs[rank]);
    }
    for (unsigned i = 0; i < turns; ++i) {
      for (Rank& rank : ranks) rank.turn();
    }
    for (Rank& rank : ranks) rank.engine.fail(rank.execution, failure(Code::cancelled, "the test"));
    turn_until_ended();
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
