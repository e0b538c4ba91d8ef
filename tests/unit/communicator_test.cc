// SPDX-License-Identifier: Apache-2.0
//
// Handles of the C++ interface: empty handles, and a communicator whose runtime has shut down.
#include "support/outcome.h"
#include "support/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::test {
namespace {

using Counts = std::vector<std::uint64_t>;

/// Calls every member function that returns a Status or Result. Returns the outcomes with the names
/// of the functions.
std::vector<std::pair<std::string, Status>> ask_everything(Communicator& on) {
  std::vector<float> a(4), b(4);
  const ConstBuffer in(a.data(), 1, DataType::float32);
  const Buffer out(b.data(), 1, DataType::float32);
  const Counts counts{1};
  return {
      {"all_reduce", on.all_reduce(in, out).wait()},
      {"reduce", on.reduce(in, out, RedOp::sum, 0).wait()},
      {"broadcast", on.broadcast(in, out, 0).wait()},
      {"broadcast in place", on.broadcast(out, 0).wait()},
      {"all_gather", on.all_gather(in, out).wait()},
      {"all_gather_v", on.all_gather_v(in, out, counts).wait()},
      {"reduce_scatter", on.reduce_scatter(in, out).wait()},
      {"reduce_scatter_v", on.reduce_scatter_v(in, out, counts).wait()},
      {"all_to_all", on.all_to_all(in, out).wait()},
      {"all_to_all_v", on.all_to_all_v(in, counts, out, counts).wait()},
      {"gather", on.gather(in, out, 0).wait()},
      {"scatter", on.scatter(in, out, 0).wait()},
      {"barrier", on.barrier().wait()},
      {"send", on.send(in, 0).wait()},
      {"recv", on.recv(out, 0).wait()},
      {"split", on.split(0, 0).status()},
      {"duplicate", on.duplicate().status()},
      {"abort", on.abort("a test")},
      {"plan_info", on.plan_info("all_reduce", 1, DataType::float32).status()},
  };
}

void expect_empty(Communicator on) {
  EXPECT_FALSE(on);
  for (const auto& [name, status] : ask_everything(on)) {
    EXPECT_THAT(status, fails_as(Code::invalid_argument, "communicator is empty")) << name;
  }
  EXPECT_EQ(on.size(), 0U);
  EXPECT_EQ(on.rank(), kNoRank);
  EXPECT_EQ(on.id(), kNoRank);
  EXPECT_EQ(on.world_rank(0), kNoRank);
  EXPECT_TRUE(on.destroy().is_ok()) << "ending an empty handle is no error";
}

TEST(EmptyCommunicator, RefusesEveryCall) { expect_empty(Communicator()); }

TEST(EmptyCommunicator, IsThatOfARankThatTakesNoPart) {
  run_ranks({}, [](const Communicator& world) {
    const auto part = value_of(world.split(world.rank() == 0 ? -1 : 0, 0));
    if (world.rank() == 0) expect_empty(part);
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(EmptyCommunicator, IsTheWorldAfterShutdown) {
  run_ranks({}, [](Runtime& runtime, MemoryHub&) {
    EXPECT_TRUE(runtime.world().barrier().wait());
    ASSERT_TRUE(runtime.shutdown());
    expect_empty(runtime.world());
  });
}

void expect_empty(Runtime& runtime) {
  expect_empty(runtime.world());
  EXPECT_EQ(runtime.rank(), kNoRank);
  EXPECT_EQ(runtime.size(), 0U);
  EXPECT_EQ(runtime.local_rank(), kNoRank);
  EXPECT_EQ(runtime.local_size(), 0U);
  EXPECT_TRUE(runtime.hosts().empty());
  EXPECT_TRUE(runtime.paths().empty());
  EXPECT_EQ(runtime.launcher(), "");
  EXPECT_TRUE(runtime.shutdown()) << "ending an empty handle is no error";
}

TEST(EmptyRuntime, HasNoRanks) {
  Runtime runtime;
  expect_empty(runtime);
}

TEST(EmptyRuntime, IsWhatWasMovedFrom) {
  run_ranks({}, [](Runtime& runtime, MemoryHub&) {
    Runtime kept = std::move(runtime);
    expect_empty(runtime);  // NOLINT(bugprone-use-after-move): what it answers then is the test
    EXPECT_TRUE(kept.world().barrier().wait());
    runtime = std::move(kept);
  });
}

TEST(EmptyCommunicator, ItsWorkHasEndedAndMayBeCopiedAndKept) {
  Work kept;
  {
    const Work work = Communicator().barrier();
    EXPECT_TRUE(work.test());
    EXPECT_EQ(work.status().code(), Code::invalid_argument);
    EXPECT_EQ(work.wait_for(std::chrono::nanoseconds(1)).code(), Code::invalid_argument);
    kept = work;
  }
  EXPECT_EQ(kept.wait().code(), Code::invalid_argument);
}

TEST(Communicator, OutlivesItsRuntimeAndThenRefusesEveryCall) {
  Communicator kept;
  run_ranks({.size = 1}, [&](Runtime& runtime, MemoryHub&) {
    kept = runtime.world();
    ASSERT_TRUE(runtime.shutdown());
  });
  for (const auto& [name, status] : ask_everything(kept)) {
    if (name == "plan_info") continue;  // It returns a plan, which still exists.
    EXPECT_EQ(status.code(), Code::invalid_argument) << name;
  }
  EXPECT_EQ(kept.size(), 1U);
}

// Containers convert to buffers, except temporaries, which could be destroyed before the call ends,
// and containers whose elements cannot be written or are not numbers.
static_assert(std::is_constructible_v<Buffer, std::vector<float>&>);
static_assert(std::is_constructible_v<Buffer, std::array<std::int64_t, 2>&>);
static_assert(std::is_constructible_v<Buffer, double (&)[3]>);
static_assert(std::is_constructible_v<Buffer, std::span<float>>);
static_assert(std::is_constructible_v<ConstBuffer, const std::vector<float>&>);
static_assert(std::is_constructible_v<ConstBuffer, std::vector<float>&>);
static_assert(std::is_constructible_v<ConstBuffer, std::span<const float>>);
static_assert(!std::is_constructible_v<Buffer, const std::vector<float>&>);
static_assert(!std::is_constructible_v<Buffer, std::vector<float>>);
static_assert(!std::is_constructible_v<ConstBuffer, std::array<float, 2>>);
static_assert(!std::is_constructible_v<Buffer, std::vector<bool>&>);

TEST(Communicator, TakesContainersAsBuffers) {
  run_ranks({}, [](const Communicator& world) {
    const std::vector<double> input{1, 2.5};
    std::vector<double> output(2);
    ASSERT_TRUE(world.all_reduce(input, output).wait());
    EXPECT_THAT(output, testing::ElementsAre(world.size(), 2.5 * world.size()));
    std::array<std::uint8_t, 3> bytes{1, 2, 3};
    ASSERT_TRUE(world.all_reduce(bytes, bytes, RedOp::max).wait());
    int root[] = {static_cast<int>(world.rank())};
    ASSERT_TRUE(world.broadcast(root, 1).wait());
    EXPECT_EQ(root[0], 1);
  });
}

TEST(WaitAll, WaitsForEachAndReturnsTheFirstError) {
  run_ranks({}, [](const Communicator& world) {
    std::vector<float> values(1 << 16, 1);
    std::vector<float> others(values);
    std::vector<Work> works{world.all_reduce(values, values), world.all_reduce(others, others)};
    EXPECT_TRUE(wait_all(works));
    EXPECT_TRUE(works[0].ended() && works[1].ended());
    EXPECT_EQ(others.back(), world.size());
    works.push_back(world.reduce(values, values, RedOp::sum, world.size()));
    works.push_back(Communicator().barrier());
    const Status first = wait_all(works);
    EXPECT_EQ(first.to_string(), works[2].status().to_string());
    EXPECT_FALSE(first);
    EXPECT_EQ(wait_all(works[0], works[3], works[2]).to_string(), works[3].status().to_string());
    EXPECT_TRUE(wait_all(std::span<const Work>()));
  });
}

TEST(Communicator, HasNoWorldRankForARankItHasNot) {
  run_ranks({}, [](const Communicator& world) {
    EXPECT_EQ(world.world_rank(1), 1U);
    EXPECT_EQ(world.world_rank(2), kNoRank);
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(Communicator, PlansNothingForWhatIsNoType) {
  run_ranks({.size = 1}, [](const Communicator& world) {
    const auto plan = world.plan_info("all_reduce", 1, static_cast<DataType>(99));
    EXPECT_THAT(plan, fails_as(Code::invalid_argument, "99 is not a DataType"));
  });
}

}  // namespace
}  // namespace xylem::test
