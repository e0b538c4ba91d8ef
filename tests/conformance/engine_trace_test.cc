// SPDX-License-Identifier: Apache-2.0
//
// The engine can run one schedule in three ways: within the call, as an operation that is an
// exchange, or in rounds. In all three ways, every step of every rank must read and write the same
// operands with the same bytes, whatever their addresses are. The test records the operands: it
// builds the engine with XYLEM_ENGINE_TRACE. Steps that are fused over shared memory must have the
// same results as separate steps over loopback, which does not fuse.
#include "conformance/gifts.h"
#include "support/ranks.h"
#include "xylem/execution/execution.h"
#include "xylem/execution/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace xylem::runtime {
namespace {

using execution::ProgramStep;
using execution::Run;
using execution::Traced;

/// An operand that a step has read or written.
struct Event {
  std::uint32_t step = 0, slice = 0, operand = 0;
  Traced what = Traced::source;
  std::size_t hash = 0;  ///< Hash of the operand's bytes.
  friend auto operator<=>(const Event&, const Event&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Event& event) {
    return out << "step " << event.step << " slice " << event.slice << " operand " << event.operand
               << " kind " << static_cast<int>(event.what) << " hash " << event.hash;
  }
};

/// The events of one call, in any order. `traces` finds them by the address of the call's output.
struct Trace {
  std::vector<Event> events;
  bool by_call = false;  ///< True if the call ended without becoming an operation.
};

std::mutex traces_mutex;
std::map<const std::byte*, Trace> traces;
std::atomic<bool> by_rounds{false};
/// The number of copied slices that were written together with a send. `last_along` counts those
/// that were the last slice of their copy.
std::atomic<std::uint32_t> made_along{0}, last_along{0};

using test::gift;
using test::Values;

enum class Way : std::uint8_t { call, operation, rounds };

constexpr std::array kOperations{"all_reduce", "all_gather", "reduce_scatter",
                                 "all_to_all", "reduce",     "broadcast"};

Work call(const Communicator& world,
          std::string_view operation,
          std::span<const std::int32_t> in,
          std::span<std::int32_t> out) {
  if (operation == "all_reduce") return world.all_reduce(in, out.first(in.size()));
  if (operation == "reduce") return world.reduce(in, out.first(in.size()), RedOp::sum, 0);
  if (operation == "all_gather") return world.all_gather(in, out);
  const std::size_t part = in.size() / world.size();
  if (operation == "reduce_scatter") return world.reduce_scatter(in, out.first(part));
  if (operation == "all_to_all") return world.all_to_all(in, out.first(in.size()));
  return world.broadcast(in, out.first(in.size()), 0);
}

/// For each way of running a call: the events of each rank in one call.
using Traces = std::map<Way, std::vector<std::vector<Event>>>;

class EngineTrace : public testing::TestWithParam<std::uint32_t> {
 protected:
  /// Makes the same call many times. Some of these calls end at once, and others become operations.
  static void collect(std::string_view operation,
                      std::size_t count,
                      Traces& found,
                      test::RankOptions options = {.transport = "shm"}) {
    constexpr int kCalls = 60;
    const std::uint32_t ranks = GetParam();
    std::mutex mutex;
    options.size = ranks;
    test::run_ranks(options, [&](Runtime& runtime, test::MemoryHub&) {
      const auto world = runtime.world();
      const Values in = gift(world.rank(), 0, count * ranks);
      for (int i = 0; i < kCalls; ++i) {
        // In each round one rank calls late, so the calls of the other ranks become operations.
        for (int left = i % 4 == static_cast<int>(world.rank() % 4) ? i : 0; left > 0; --left) {
          std::this_thread::yield();
        }
        Values out(in.size() * ranks);
        ASSERT_TRUE(call(world, operation, in, std::span(out)).wait());
        Trace made;
        {
          const std::scoped_lock lock(traces_mutex);
          made = std::move(traces[reinterpret_cast<const std::byte*>(out.data())]);
          traces.erase(reinterpret_cast<const std::byte*>(out.data()));
        }
        if (made.events.empty()) continue;  // This rank has no operands.
        std::ranges::sort(made.events);
        const Way way = by_rounds ? Way::rounds : made.by_call ? Way::call : Way::operation;
        const std::scoped_lock lock(mutex);
        auto& of_way = found[way];
        of_way.resize(ranks);
        auto& events = of_way[world.rank()];
        if (events.empty()) events = made.events;
        ASSERT_EQ(events, made.events) << "call " << i << " of rank " << world.rank();
      }
    });
  }
};

TEST_P(EngineTrace, IsTheSameByEveryWay) {
  bool ended_within = false, became_operations = false;
  for (const std::string_view operation : kOperations) {
    for (const std::size_t count : {1U, 26U, 700U}) {
      SCOPED_TRACE(testing::Message() << operation << " of " << count);
      Traces found;
      for (const bool rounds : {false, true}) {
        by_rounds = rounds;
        collect(operation, count, found);
        if (HasFailure()) return;
      }
      by_rounds = false;
      const auto& reference = found[Way::rounds];
      for (const Way way : {Way::call, Way::operation}) {
        const auto& of_way = found[way];
        for (std::size_t rank = 0; rank < of_way.size(); ++rank) {
          if (of_way[rank].empty()) continue;
          (way == Way::call ? ended_within : became_operations) = true;
          ASSERT_EQ(of_way[rank], reference[rank]) << "rank " << rank;
        }
      }
    }
  }
  EXPECT_TRUE(became_operations);
  EXPECT_TRUE(ended_within || GetParam() > std::thread::hardware_concurrency());
}

/// Returns the events without receives. Over loopback, the transport writes received data, so the
/// engine records no receives.
std::vector<std::vector<Event>> without_receipts(Traces& found) {
  auto& of_rank = found[Way::rounds];
  for (auto& events : of_rank) {
    std::erase_if(events, [](const Event& event) { return event.what == Traced::received; });
  }
  return of_rank;
}

TEST_P(EngineTrace, OfManySlicesIsTheSameFusedAsStepByStep) {
  struct Plan {
    std::string_view operation, algorithm;
    bool has_copy = false;  ///< True if the plan copies what a rank sends.
  };
  constexpr std::size_t kCount = 700;  // At least three slices, of which the last is short.
  for (const Plan& plan : {Plan{"all_reduce", "two_shot"}, Plan{"all_gather", "direct", true},
                           Plan{"all_gather", "ring", true}, Plan{"reduce_scatter", "direct"},
                           Plan{"all_to_all", "direct"}, Plan{"reduce", "binomial"},
                           Plan{"broadcast", "direct", true}, Plan{"broadcast", "ring", true}}) {
    SCOPED_TRACE(testing::Message() << plan.operation << " " << plan.algorithm);
    Traces fused, plain;
    by_rounds = true;
    for (const bool is_fused : {false, true}) {
      test::RankOptions options{.transport = is_fused ? "shm" : "loopback"};
      options.environment["XYLEM_SLICE"] = "1K";
      options.environment["XYLEM_ALGORITHM"] = plan.algorithm;
      made_along = last_along = 0;
      collect(plan.operation, kCount, is_fused ? fused : plain, options);
      if (HasFailure()) break;
      EXPECT_EQ(made_along > 0, is_fused && plan.has_copy && GetParam() > 1) << made_along;
      EXPECT_EQ(last_along, 0U) << "somebody waits for the last slice";
    }
    by_rounds = false;
    if (HasFailure()) return;
    ASSERT_THAT(without_receipts(plain), testing::Contains(testing::Not(testing::IsEmpty())));
    ASSERT_EQ(without_receipts(fused), without_receipts(plain));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineTrace, testing::Values(1, 2, 3, 5, 8));

}  // namespace

}  // namespace xylem::runtime

// The engine calls these functions if it is built with XYLEM_ENGINE_TRACE.
namespace xylem::execution {

bool are_all_by_rounds() { return runtime::by_rounds; }

void trace(const Run& run,
           const ProgramStep& step,
           std::uint32_t slice,
           Traced what,
           std::uint32_t operand,
           const void* data) {
  const auto bytes = run.program->slice_size(step, slice);
  if (bytes == 0) return;
  const std::string_view text(static_cast<const char*>(data), bytes);
  if (what == Traced::along) {
    ++runtime::made_along;
    if (slice + 1 == step.slices) ++runtime::last_along;
    return;
  }
  const auto id = static_cast<std::uint32_t>(&step - run.program->steps.data());
  const std::scoped_lock lock(runtime::traces_mutex);
  runtime::Trace& made = runtime::traces[run.base[static_cast<int>(collectives::Buffer::output)]];
  made.by_call = (made.events.empty() || made.by_call) && run.is_within_call;
  made.events.push_back({id, slice, operand, what, std::hash<std::string_view>()(text)});
}

}  // namespace xylem::execution
