// SPDX-License-Identifier: Apache-2.0
//
// Companions of communicators, whose collectives have an order separate from that of their group.
// Labels: a collective matches only collectives with the same label.
#include "conformance/over_transports.h"
#include "support/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;

/// Makes calls of random kinds and sizes. They are the same at all ranks.
void call_at_random(const Communicator& group, std::uint64_t seed, int calls) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < calls; ++i) {
    const std::size_t count = random() % 4 == 0 ? 60'000 : random() % 900;
    const auto root = static_cast<std::uint32_t>(random() % group.size());
    std::vector<std::int64_t> mine(count, group.rank() + static_cast<std::int64_t>(seed));
    std::vector<std::int64_t> got(count);
    const auto all = std::int64_t{group.size()};
    std::int64_t expected = all * (all - 1) / 2 + all * static_cast<std::int64_t>(seed);
    switch (random() % 3) {
      case 0:
        ASSERT_TRUE(group
                        .all_reduce({mine.data(), count, DataType::int64},
                                    {got.data(), count, DataType::int64})
                        .wait()
                        .is_ok());
        break;
      case 1:
        ASSERT_TRUE(group
                        .broadcast({mine.data(), count, DataType::int64},
                                   {got.data(), count, DataType::int64}, root)
                        .wait()
                        .is_ok());
        expected = root + static_cast<std::int64_t>(seed);
        break;
      default: ASSERT_TRUE(group.barrier().wait().is_ok()); std::ranges::fill(got, expected);
    }
    ASSERT_EQ(std::ranges::count(got, expected), static_cast<std::ptrdiff_t>(count));
  }
}

class Companion : public OverTransports {
 protected:
  static RankOptions options() { return OverTransports::options(3); }
};
INSTANTIATE_TEST_SUITE_P(Transports, Companion, OverTransports::all(), OverTransports::name);

TEST_P(Companion, IsUsedByAnotherThread) {
  run_ranks(options(), [](const Communicator& world) {
    const auto part = *world.split(0, -static_cast<std::int32_t>(world.rank()));
    std::vector<std::thread> threads;
    for (const Communicator& group : {world, part}) {
      threads.emplace_back([group] { call_at_random(group, 1, 60); });
      threads.emplace_back([group] { call_at_random(*group.companion(), 2, 60); });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Each rank makes the calls on the group and on the companion in another interleaving.
TEST_P(Companion, HasAnOrderOfItsOwn) {
  run_ranks(options(), [](const Communicator& world) {
    const auto companion = *world.companion();
    std::mt19937_64 random(world.rank());
    for (int round = 0; round < 20; ++round) {
      constexpr std::size_t kCalls = 10;
      std::vector<std::int64_t> in(2 * kCalls, 1), out(2 * kCalls, 0);
      std::vector<Work> works;
      std::size_t next = 0, next_of_companion = 0;
      while (works.size() < 2 * kCalls) {
        const bool takes_companion =
            next == kCalls || (next_of_companion < kCalls && random() % 2 == 0);
        const std::size_t i = takes_companion ? kCalls + next_of_companion++ : next++;
        works.push_back((takes_companion ? companion : world).all_reduce(one(in[i]), into(out[i])));
      }
      for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
      ASSERT_EQ(std::ranges::count(out, std::int64_t{world.size()}),
                static_cast<std::ptrdiff_t>(out.size()));
    }
  });
}

TEST(CompanionOfAGroup, IsAlwaysTheSame) {
  run_ranks({}, [](const Communicator& world) {
    std::int64_t value = 1, sum = 0;
    // Rank 0 drops its handle of the companion between the two calls.
    {
      const auto companion = *world.companion();
      EXPECT_EQ(companion.id(), 0U);
      EXPECT_EQ(companion.size(), 2U);
      EXPECT_EQ(companion.rank(), world.rank());
      ASSERT_TRUE(companion.all_reduce(one(value), into(sum)).wait().is_ok());
    }
    const auto companion = *world.companion();
    ASSERT_TRUE(companion.all_reduce(one(value), into(sum)).wait().is_ok());
    EXPECT_EQ(sum, 2);
    const auto part = *companion.split(0, 0);
    ASSERT_TRUE(part.barrier().wait().is_ok());
  });
  EXPECT_EQ(Communicator().companion().status().code(), Code::invalid_argument);
}

TEST(CompanionOfAGroup, OutlivesTheHandleOfTheGroup) {
  run_ranks({}, [](const Communicator& world) {
    auto group = *world.duplicate();
    const auto companion = *group.companion();
    const std::uint32_t number = group.id();
    group = Communicator();
    ASSERT_TRUE(companion.barrier().wait().is_ok());
    EXPECT_NE(world.duplicate()->id(), number) << "the companion uses the seat";
  });
}

TEST(CompanionOfAGroup, IsForCollectives) {
  run_ranks({}, [](const Communicator& world) {
    const auto companion = *world.companion();
    std::int64_t value = 0;
    EXPECT_EQ(companion.send(one(value), 0, 1).wait().code(), Code::unsupported);
    EXPECT_EQ(companion.recv(into(value), 1, 1).wait().code(), Code::unsupported);
    EXPECT_EQ(companion.companion().status().code(), Code::unsupported);
    EXPECT_EQ(companion.bind({MemoryKind::cuda, 0}).status().code(), Code::unsupported);
    ASSERT_TRUE(companion.barrier().wait().is_ok());
  });
}

TEST(CompanionOfAGroup, EndsWithTheGroup) {
  run_ranks({}, [](const Communicator& world) {
    auto group = *world.duplicate();
    const auto companion = *group.companion();
    if (world.rank() == 0) {
      const Work pending = companion.barrier();
      EXPECT_EQ(group.destroy().code(), Code::busy);
      ASSERT_TRUE(world.barrier().wait().is_ok());
      ASSERT_TRUE(pending.wait().is_ok());
    } else {
      ASSERT_TRUE(world.barrier().wait().is_ok());
      ASSERT_TRUE(companion.barrier().wait().is_ok());
    }
    ASSERT_TRUE(group.destroy().is_ok());
    EXPECT_EQ(companion.barrier().wait().code(), Code::invalid_argument);
  });
}

TEST(CompanionOfAGroup, FailsWithTheGroup) {
  std::latch have_made(2);
  run_ranks({}, [&](const Communicator& world) {
    for (const bool fails_in_companion : {true, false}) {
      const auto group = *world.duplicate();
      const auto companion = *group.companion();
      const auto& failing = fails_in_companion ? companion : group;
      const auto& other = fails_in_companion ? group : companion;
      std::vector<std::int64_t> some(2);
      const std::size_t count = 1 + world.rank();
      const Status outcome = failing
                                 .all_reduce({some.data(), count, DataType::int64},
                                             {some.data(), count, DataType::int64})
                                 .wait();
      EXPECT_EQ(outcome.code(), Code::mismatch);
      EXPECT_EQ(other.barrier().wait().code(), Code::mismatch);
      if (fails_in_companion) {
        EXPECT_THAT(outcome, fails_with("the companion of communicator "));
      }
    }
    have_made.arrive_and_wait();
  });
}

// Rank 1 never requests its companion. The error must still name rank 1.
TEST(CompanionOfAGroup, NamesWhoDidNotCall) {
  std::latch is_over(2);
  run_ranks({}, [&](const Communicator& world) {
    if (world.rank() == 0) {
      const Work never = world.companion()->barrier();
      never.set_timeout(milliseconds(400));
      const Status outcome = never.wait();
      EXPECT_THAT(outcome,
                  testing::AllOf(fails_as(Code::timed_out,
                                          "rank 1 did not call it; rank 1 has called nothing yet"),
                                 blames(1U)));
    }
    is_over.arrive_and_wait();
    EXPECT_EQ(world.barrier().wait().code(), Code::timed_out);
    EXPECT_EQ(world.companion()->barrier().wait().code(), Code::timed_out);
  });
}

class Labelled : public Companion {};
INSTANTIATE_TEST_SUITE_P(Transports, Labelled, OverTransports::all(), OverTransports::name);

TEST_P(Labelled, CallsMatchAsOthersDo) {
  run_ranks(options(), [](const Communicator& world) {
    for (const std::uint64_t label : {1, 1, 2, 0, 1}) call_at_random(world.labelled(label), 3, 10);
    call_at_random(world.companion()->labelled(~0ULL), 4, 10);
    const std::vector<std::uint64_t> counts(world.size(), 1);
    std::vector<std::int64_t> all(world.size());
    std::int64_t mine = world.rank();
    ASSERT_TRUE(world.labelled(5)
                    .all_gather_v(one(mine), {all.data(), all.size(), DataType::int64}, counts)
                    .wait()
                    .is_ok());
    EXPECT_EQ(all.back(), static_cast<std::int64_t>(world.size() - 1));
  });
}

using LabelledCall = std::function<Work(const Communicator&, std::int64_t&)>;

/// Checks the error if the two ranks make the same call with different labels.
void expect_mismatch(std::array<std::uint64_t, 2> labels,
                     const std::string& text,
                     const LabelledCall& call) {
  std::latch is_over(2);
  run_ranks({}, [&](const Communicator& world) {
    // This call makes the plan, and the next call reuses it.
    std::int64_t value = 1;
    EXPECT_TRUE(call(world.labelled(7), value).wait().is_ok());
    const Status outcome = call(world.labelled(labels[world.rank()]), value).wait();
    EXPECT_THAT(outcome, fails_as(Code::mismatch, text));
    is_over.arrive_and_wait();
  });
}

TEST(LabelledCalls, OfOtherLabelsAreAMismatch) {
  const auto sum = [](const Communicator& group, std::int64_t& value) {
    return group.all_reduce(one(value), into(value));
  };
  const auto gather = [](const Communicator& group, std::int64_t& value) {
    std::array<std::int64_t, 2> all{};
    const Work work = group.all_gather_v(one(value), {all.data(), all.size(), DataType::int64},
                                         std::vector<std::uint64_t>{1, 1});
    (void)work.wait();
    return work;
  };
  expect_mismatch({7, 8},
                  "rank 0 calls all_reduce of 1 int64, sum, label 7, rank 1 calls all_reduce of 1 "
                  "int64, sum, label 8",
                  sum);
  expect_mismatch({0, 8}, "rank 0 calls all_reduce of 1 int64, sum, rank 1 calls all_reduce", sum);
  expect_mismatch({9, 8}, "rank 0 calls all_gather_v int64, label 9, rank 1", gather);
  expect_mismatch({9, 8}, "rank 0 calls barrier, label 9, rank 1 calls barrier, label 8",
                  [](const Communicator& group, std::int64_t&) { return group.barrier(); });
}

// Messages match by tags, whatever the labels of their communicators are.
TEST(LabelledCalls, MessagesHaveNoLabels) {
  run_ranks({}, [](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world().labelled(1 + runtime.rank());
    std::int64_t value = 3, got = 0;
    const Work sent = world.send(one(value), 1 - runtime.rank());
    ASSERT_TRUE(world.recv(into(got), 1 - runtime.rank()).wait().is_ok());
    ASSERT_TRUE(sent.wait().is_ok());
    EXPECT_EQ(got, 3);
  });
  EXPECT_EQ(Communicator().labelled(3).barrier().wait().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace xylem::test
