// SPDX-License-Identifier: Apache-2.0
//
// The engine with a made-up device. The device has gates and up to four queues. It completes work
// later, in a random order, and the CPU cannot access its memory. Messages use loopback, which
// copies with the CPU, so programs are staged.
#include "fakes/delayed_compute.h"
#include "support/engine_call.h"
#include "support/engine_parts.h"
#include "support/engine_ranks.h"
#include "xylem/base/clock.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/staging.h"
#include "xylem/transport/loopback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace xylem::execution {
namespace {

using collectives::Collective;
using test::DelayedCompute;
using test::DelayedComputeOptions;
using test::DeviceMemory;

class ComputeOver : public testing::TestWithParam<std::uint32_t> {
 protected:
  ComputeOver() : fabric({/*seed=*/7, /*eager_bytes=*/512}) {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      engines.emplace_back(rank, fabric.attach());
    for (Rank& rank : engines) rank.connect(engines);
  }
  static std::uint32_t ranks() { return GetParam(); }

  static std::shared_ptr<const Program> program(const EngineCall& call, std::uint32_t rank) {
    collectives::Staging staging = collectives::staged_messages(ranks());
    staging.input = call.is_scaled;
    const auto plan = stage(call.plan(rank), staging);
    return call.program(plan, {.slice_bytes = 256, .window = 3, .fusion = Fusion::views});
  }
  /// Creates one device for each rank. Only the device of rank 0 can have faults.
  void power_up(DelayedComputeOptions options) {
    devices.clear();
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      options.seed = options.seed * 31 + rank;
      devices.emplace_back(memory, options);
      options.fault_after = 0;
    }
  }
  void begin(const EngineCall& call, std::uint64_t sequence, bool has_gates) {
    outputs.clear();
    gates.clear();
    ends.clear();
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      Words input(call.elements(rank, Buffer::input));
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(rank, i);
      std::byte* const in = memory.allocate(input.size() * sizeof(std::uint32_t));
      memory.write(in, input.data(), input.size() * sizeof(std::uint32_t));
      const auto bytes = call.elements(rank, Buffer::output) * sizeof(std::uint32_t);
      outputs.push_back(memory.allocate(bytes));
      Rank& engine = engines[rank];
      engine.prepare(program(call, rank), sequence);
      auto& execution = engine.execution;
      execution.run.device.compute = &devices[rank];
      execution.run.factor = call.factor();
      execution.run.base[static_cast<int>(Buffer::input)] = in;
      execution.run.base[static_cast<int>(Buffer::output)] = outputs.back();
      for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        execution.run.device.memory[static_cast<int>(buffer)] = {MemoryKind::cuda, 0};
      }
      gates.push_back(devices[rank].make_gate());
      ends.push_back(devices[rank].make_gate());
      if (has_gates) execution.run.device.gate = gates.back();
      execution.run.device.end = ends.back();
      engine.begin();
    }
  }
  bool is_right(const EngineCall& call) {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      Words output(call.elements(rank, Buffer::output));
      memory.read(output.data(), outputs[rank], output.size() * sizeof(std::uint32_t));
      for (std::size_t i = 0; i < output.size(); ++i) {
        if (output[i] != call.expected(rank, i)) return false;
      }
    }
    return true;
  }
  void expect_ended() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const Rank& engine = engines[rank];
      EXPECT_EQ(engine.execution.ended, 1U);
      EXPECT_EQ(engine.execution.unreferenced_times, 1U);
      EXPECT_EQ(engine.execution.outstanding, 0U);
      EXPECT_EQ(engine.engine.active(), nullptr);
      EXPECT_FALSE(engine.engine.has_pending_work());
      EXPECT_TRUE(devices[rank].is_open(ends[rank]));
    }
  }
  /// Opens the gates one by one, in an order drawn from a seed. In between, all ranks make turns.
  void open_gates(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint32_t> order(ranks());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) order[rank] = rank;
    std::ranges::shuffle(order, random);
    for (const std::uint32_t rank : order) {
      for (auto turns = random() % 20; turns > 0; --turns) {
        for (Rank& engine : engines) engine.turn();
      }
      devices[rank].open(gates[rank]);
    }
  }
  void call(const EngineCall& called,
            std::uint64_t sequence,
            std::optional<std::uint64_t> gate_seed) {
    begin(called, sequence, gate_seed.has_value());
    if (gate_seed) open_gates(*gate_seed);
    ASSERT_TRUE(turn_until_ended(engines));
    expect_ended();
    const auto title = std::string(name(called.collective())) + " " +
                       std::string(called.planner->name) + " of " + std::to_string(called.count) +
                       (called.is_scaled ? ", scaled" : "");
    for (const Rank& rank : engines) {
      ASSERT_TRUE(rank.execution.outcome) << title << ": " << rank.execution.outcome.message();
    }
    ASSERT_TRUE(is_right(called)) << title;
  }

  DeviceMemory memory{std::size_t{1} << 30};
  transport::LoopbackFabric fabric;
  std::deque<DelayedCompute> devices;
  std::deque<Rank> engines;
  std::vector<std::byte*> outputs;
  std::vector<Ticket> gates, ends;
};

TEST_P(ComputeOver, EveryPlanIsRightOnOneToFourQueuesBehindGates) {
  std::uint64_t sequence = 0;
  for (const std::uint32_t queues : {1, 2, 4}) {
    power_up({.seed = queues, .queues = queues});
    for (const collectives::Planner& planner : collectives::planners()) {
      for (const std::uint64_t count : {1, 70, 1500}) {
        for (const bool is_scaled : {false, true}) {
          const std::uint64_t number = sequence++;
          const bool has_gates = number % 2 == 1;
          call({&planner, ranks(), count, is_scaled && reduces(planner.collective)}, number,
               has_gates ? std::optional(number) : std::nullopt);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ComputeOver, NothingBeginsBeforeItsGateIsOpen) {
  const EngineCall call{collectives::find_planner(Collective::all_reduce, "ring"), ranks(), 1500};
  power_up({.seed = 5, .queues = 2});
  begin(call, 0, /*has_gates=*/true);
  constexpr unsigned kTurns = 1000;
  for (unsigned i = 0; i < kTurns; ++i) {
    for (Rank& rank : engines) rank.turn();
  }
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(devices[rank].done(), 0U);
    EXPECT_EQ(engines[rank].execution.ended, 0U);
    EXPECT_TRUE(engines[rank].engine.has_pending_work());
    for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
      EXPECT_EQ(engines[rank].bytes_sent_to(peer), 0U);
    }
  }
  open_gates(1);
  ASSERT_TRUE(turn_until_ended(engines));
  EXPECT_TRUE(is_right(call));
}

// This shows that the tests above detect an engine that omits dependencies of device work.
TEST_P(ComputeOver, ADeviceThatDoesNotKeepTheOrderIsNoticed) {
  unsigned wrong = 0;
  std::uint64_t sequence = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const auto& planner : collectives::planners()) {
      if (planner.collective != Collective::all_reduce || planner.takes_hosts) continue;
      power_up({.seed = seed, .queues = 4, .ignores_order = true});
      const EngineCall call{&planner, ranks(), 1500, /*is_scaled=*/true};
      begin(call, sequence++, /*has_gates=*/false);
      ASSERT_TRUE(turn_until_ended(engines));
      if (!is_right(call)) ++wrong;
    }
  }
  EXPECT_GT(wrong, 0U);
}

TEST_P(ComputeOver, ACallThatFailsWaitsForItsWorkAndServesTheNext) {
  std::uint64_t sequence = 0;
  unsigned failed_with_work = 0;
  for (const auto* algorithm : {"ring", "recursive_doubling"}) {
    const auto* planner = collectives::find_planner(Collective::all_reduce, algorithm);
    ASSERT_NE(planner, nullptr);
    const EngineCall call{planner, ranks(), 1500};
    for (unsigned turns = 0; turns < 40; ++turns) {
      const bool has_gates = turns % 3 == 2;
      power_up({.seed = turns + 1, .queues = 1 + turns % 4, .keeps_cancelled = turns % 2 == 0});
      begin(call, sequence++, has_gates);
      for (unsigned i = 0; i < turns; ++i) {
        for (Rank& rank : engines) rank.turn();
      }
      std::vector<Code> expected;
      for (Rank& rank : engines) {
        if (rank.engine.has_pending_work()) ++failed_with_work;
        expected.push_back(rank.execution.ended > 0 ? Code::ok : Code::cancelled);
        rank.engine.fail(rank.execution, failure(Code::cancelled, "the test"));
      }
      // If the device does not drop cancelled work, this work still waits for its gate.
      if (has_gates) open_gates(turns);
      ASSERT_TRUE(turn_until_ended(engines));
      expect_ended();
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        EXPECT_EQ(engines[rank].execution.outcome.code(), expected[rank]);
        engines[rank].discard_all();
      }
      this->call(call, sequence++, std::nullopt);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(failed_with_work, 20U);
}

TEST_P(ComputeOver, AFaultOfADeviceEndsTheCallWithIt) {
  const EngineCall call{collectives::find_planner(Collective::all_reduce, "ring"), ranks(), 1500};
  std::uint64_t sequence = 0;
  for (std::uint64_t after = 1; after < 8; ++after) {
    power_up({.seed = after, .queues = 2, .fault_after = after});
    begin(call, sequence++, /*has_gates=*/false);
    constexpr unsigned kTurns = 100'000;
    unsigned turns = 0;
    while (engines[0].execution.ended == 0 && ++turns < kTurns) {
      for (Rank& rank : engines) rank.turn();
    }
    const Status& outcome = engines[0].execution.outcome;
    EXPECT_EQ(outcome.code(), Code::internal);
    EXPECT_EQ(outcome.message(), "the made-up device has a fault");
    for (Rank& rank : engines) {
      rank.engine.fail(rank.execution, failure(Code::cancelled, "the test"));
    }
    ASSERT_TRUE(turn_until_ended(engines));
    expect_ended();
    for (Rank& rank : engines) rank.discard_all();
  }
}

/// Returns the pieces in which a device copies `bytes` bytes, if it completes one piece after
/// another.
std::vector<std::uint64_t> pieces_of(std::uint64_t bytes, std::uint64_t slice_bytes) {
  transport::LoopbackFabric fabric({/*seed=*/7, /*eager_bytes=*/512});
  HandDriven device;
  Rank rank(0, fabric.attach());
  const EngineCall call{collectives::find_planner(Collective::all_reduce, "ring"), 1,
                        bytes / sizeof(std::uint32_t)};
  std::vector<std::byte> input(bytes), output(bytes);
  rank.prepare(call.program(call.plan(0),
                            {.slice_bytes = slice_bytes, .window = 8, .fusion = Fusion::views}),
               0);
  auto& run = rank.execution.run;
  run.device.compute = &device;
  run.base[static_cast<int>(Buffer::input)] = input.data();
  run.base[static_cast<int>(Buffer::output)] = output.data();
  rank.begin();
  for (int turn = 0; turn < 1000 && rank.execution.ended == 0; ++turn) {
    for (int idle = 0; idle < 10; ++idle) rank.turn();
    ++device.done;
  }
  EXPECT_EQ(rank.execution.ended, 1U);
  return device.pieces;
}

// The whole input is available, so each piece has as many slices as the window allows, which is
// eight.
TEST(PiecesOfWork, HaveAllSlicesThatAreReady) {
  const std::vector<std::uint64_t> expected{800, 800, 456};
  EXPECT_EQ(pieces_of(2056, 100), expected);
  EXPECT_EQ(pieces_of(100, 100), std::vector<std::uint64_t>{100});
}

TEST(PiecesOfWork, AreBounded) {
  constexpr std::uint64_t kSlice = 1 << 19, kFull = 1 << 20;
  const auto pieces = pieces_of(16 * kSlice, kSlice);
  EXPECT_EQ(pieces, std::vector<std::uint64_t>(8, kFull));
}

/// A point-to-point call whose message is a view. A device copies it behind a gate. If the gate
/// opens too late, the message is first copied to the host.
class CopyBehindAGate : public testing::Test, public EngineListener {
 protected:
  CopyBehindAGate() {
    execution.set_references(1);
    execution.run.device.compute = &device;
    execution.run.device.gate = kGate;
    execution.run.steps_left = 0;
    engine.activate(execution);
  }
  void post(Deadline limit) {
    engine.post_copy(execution, {target, source, 100, {&views, {}}}, limit);
  }
  void turn() {
    for (int i = 0; i < 10; ++i) engine.run();
  }
  void open_gate() { device.done = kGate.number; }

  void on_ended(Execution& /*ended*/, Status outcome) override {
    ++ended;
    execution.outcome = std::move(outcome);
    execution.release();
  }
  void on_copied(Execution& /*execution*/) override {
    if (std::exchange(is_staging, false)) engine.post_copy(execution, {target, host, 50});
  }
  void on_late_gate(Execution& /*execution*/, const OnDevice::Copy& copy) override {
    EXPECT_EQ(copy.source, source);
    EXPECT_EQ(copy.bytes, 100U);
    is_staging = true;
    engine.post_copy_before_gate(execution, {host, copy.source, copy.bytes, copy.view});
  }
  void on_wire_error(Execution& /*execution*/, std::uint32_t /*peer*/, Code /*code*/) override {}
  void on_compute_error(Execution& /*execution*/, const Status& /*why*/) override {}
  void on_body(Message& /*message*/) override {}

  /// Pieces of work are numbered from 1, so the gate opens when three pieces have completed.
  static constexpr Ticket kGate{3, 0};
  std::byte target[100], source[100], host[100];
  NotedViews views;
  HandDriven device;
  Engine engine{*this};
  TestExecution execution;
  bool is_staging = false;
  unsigned ended = 0;
};

TEST_F(CopyBehindAGate, BeginsWhenTheGateOpens) {
  post(Deadline::after(std::chrono::hours(1)));
  turn();
  EXPECT_TRUE(device.pieces.empty());
  open_gate();
  turn();
  EXPECT_EQ(device.pieces, std::vector<std::uint64_t>{100});
  EXPECT_EQ(views.released, 1U);
  EXPECT_EQ(ended, 1U);
  EXPECT_TRUE(execution.outcome);
}

TEST_F(CopyBehindAGate, BeginsAtItsLimitIfTheGateIsOpen) {
  open_gate();
  post(Deadline::after(std::chrono::hours(-1)));
  turn();
  EXPECT_EQ(device.pieces, std::vector<std::uint64_t>{100});
  EXPECT_EQ(views.released, 1U);
  EXPECT_EQ(ended, 1U);
}

TEST_F(CopyBehindAGate, IsTheListenersIfTheGateIsLate) {
  post(Deadline::after(std::chrono::hours(-1)));
  turn();
  EXPECT_EQ(device.pieces, std::vector<std::uint64_t>{100});  // To the host.
  EXPECT_EQ(views.released, 0U);
  device.done = 1;
  turn();
  EXPECT_EQ(device.pieces.size(), 1U);
  EXPECT_EQ(views.released, 1U);  // As soon as the message is in host memory.
  EXPECT_EQ(ended, 0U);
  open_gate();
  turn();
  EXPECT_EQ(device.pieces, (std::vector<std::uint64_t>{100, 50}));
  EXPECT_EQ(views.released, 1U);
  EXPECT_EQ(ended, 1U);
  EXPECT_TRUE(execution.outcome);
}

TEST_F(CopyBehindAGate, DoesNotBeginIfTheCallFailsMeanwhile) {
  post(Deadline::after(std::chrono::hours(1)));
  turn();
  engine.fail(execution, failure(Code::cancelled, "the test"));
  turn();
  EXPECT_TRUE(device.pieces.empty());
  EXPECT_EQ(views.released, 1U);
  EXPECT_EQ(ended, 1U);
  EXPECT_EQ(execution.outcome.code(), Code::cancelled);
  EXPECT_FALSE(engine.has_pending_work());
}

INSTANTIATE_TEST_SUITE_P(Ranks, ComputeOver, testing::Values(1, 2, 3, 5, 8));

}  // namespace
}  // namespace xylem::execution
