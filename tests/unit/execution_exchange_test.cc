// SPDX-License-Identifier: Apache-2.0
//
// Exchanges over shared memory. All ranks run in one thread, so the test determines which rank is
// late.
#include "support/engine_call.h"
#include "support/engine_parts.h"
#include "xylem/execution/exchange.h"
#include "xylem/transport/shm.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::execution {
namespace {

constexpr std::uint32_t kRanks = 3;

/// A rank that makes all_reduces of three ranks. Each rank sends its whole input to both others.
struct ExchangeRank {
  explicit ExchangeRank(std::uint32_t rank)
      : transport(transport::make_shm({.endpoints = kRanks}).value()) {
    peers.rank = rank;
    execution.set_references(1);
  }
  void connect(const std::deque<ExchangeRank>& ranks) {
    for (const ExchangeRank& other : ranks) {
      peers.links.push_back(
          link_over(*transport, transport->connect(other.transport->address()).value()));
      peers.groups.push_back(group_of(other.peers.rank));
    }
  }
  void prepare(const EngineCall& call, std::uint64_t sequence) {
    program = call.program(call.plan(peers.rank), {});
    exchange = Exchange::of(*program, peers.rank, peers.groups);
    ASSERT_TRUE(exchange && exchange->connect(peers));
    input.assign(call.count, value(peers.rank, 0));
    output.assign(call.count, 0);
    execution.renew();
    execution.peers = &peers;
    execution.sequence = sequence;
    auto& run = execution.run;
    run.program = program.get();
    run.base[0] = reinterpret_cast<std::byte*>(input.data());
    run.base[1] = reinterpret_cast<std::byte*>(output.data());
    run.base[2] = run.scratch.reserve(program->host_scratch_bytes(), nullptr);
  }
  bool try_start() { return runner.try_start(execution, *exchange); }
  void turn() {
    transport->progress();
    while (Message* message = messages.next_completed()) runner.on_message(*message);
  }
  bool is_right(const EngineCall& call) const {
    std::uint32_t sum = 0;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) sum += value(rank, 0);
    return output == Words(call.count, sum);
  }

  std::unique_ptr<transport::Transport> transport;
  Peers peers;
  std::shared_ptr<const Program> program;
  std::optional<Exchange> exchange;
  Words input, output;
  TestExecution execution;
  NotedErrors errors;
  MessagePool messages;
  PendingWork pending;
  HeldViews views{errors, pending};
  ExchangeRunner runner{errors, messages, views};
};

class ExchangeTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  ExchangeTest() {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank);
    for (ExchangeRank& rank : ranks) rank.connect(ranks);
    // Turns until the ranks are connected.
    for (int i = 0; i < 10; ++i) {
      for (ExchangeRank& rank : ranks) rank.turn();
    }
  }
  ~ExchangeTest() override {
    for (ExchangeRank& rank : ranks) {
      for (const Link& link : rank.peers.links) rank.transport->close(link.endpoint);
      rank.transport->progress();
    }
  }
  ExchangeTest(const ExchangeTest&) = delete;
  ExchangeTest& operator=(const ExchangeTest&) = delete;

  const EngineCall call{collectives::find_planner(Collective::all_reduce, "one_shot"), kRanks,
                        GetParam()};
  std::deque<ExchangeRank> ranks;
};

TEST_P(ExchangeTest, TheLastRankEndsWithinItsCallAndIsAsNew) {
  for (std::uint64_t sequence = 0; sequence < 50; ++sequence) {
    for (ExchangeRank& rank : ranks) rank.prepare(call, sequence);
    // Each call starts the ranks in another order.
    const auto at = [&](std::uint64_t i) -> ExchangeRank& {
      return ranks[(sequence + i) % kRanks];
    };
    EXPECT_FALSE(at(0).try_start());
    EXPECT_FALSE(at(1).try_start());
    ASSERT_TRUE(at(2).try_start());
    const auto& run = at(2).execution.run;
    EXPECT_TRUE(run.program == nullptr && run.base[0] == nullptr && run.base[1] == nullptr);
    EXPECT_EQ(run.steps_left, RunState().steps_left);
    EXPECT_EQ(run.sent + run.under_way + run.views_held, 0U);
    EXPECT_FALSE(run.is_within_call || run.is_lost || run.non_temporal);
    EXPECT_TRUE(run.arrived.empty() && at(2).views.empty());
    EXPECT_EQ(at(0).views.empty(), at(0).execution.run.arrived.empty());
    for (const int early : {0, 1}) {
      ExchangeRank& rank = at(early);
      rank.runner.post_rest(rank.execution);
      for (int i = 0; i < 100 && rank.execution.run.steps_left > 0; ++i) rank.turn();
      ASSERT_EQ(rank.execution.run.steps_left, 0U);
      EXPECT_EQ(rank.execution.outstanding, 0U);
      EXPECT_TRUE(rank.views.empty());
    }
    for (const ExchangeRank& rank : ranks) ASSERT_TRUE(rank.is_right(call));
  }
}

TEST_P(ExchangeTest, AMessageThatFailsIsReportedAndTheExchangeGoesOn) {
  ExchangeRank& rank = ranks[0];
  rank.prepare(call, 0);
  rank.runner.post_rest(rank.execution);
  Message* receive = rank.execution.messages;
  while (!receive->incoming) receive = receive->next;
  const std::uint32_t peer = rank.program->lanes[rank.program->steps[receive->step].lane].peer;
  rank.transport->cancel(*receive);
  rank.turn();
  EXPECT_EQ(rank.errors.wire_errors, (std::vector{std::pair{peer, Code::cancelled}}));
  EXPECT_EQ(rank.execution.run.steps_left, 1U);
}

INSTANTIATE_TEST_SUITE_P(Elements, ExchangeTest, testing::Values(1, 100, 2000));

}  // namespace
}  // namespace xylem::execution
