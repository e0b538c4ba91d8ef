// SPDX-License-Identifier: Apache-2.0
//
// Runs several operations, communicators and threads at once. Every interleaving must complete with
// right results.
#include "support/outcome.h"
#include "support/ranks.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks[] = {1, 2, 3, 5, 8};

class Concurrency : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks,
                         Concurrency,
                         testing::ValuesIn(kRanks),
                         testing::PrintToStringParamName());

RankOptions loopback(std::uint32_t ranks) {
  return {.size = ranks, .seed = 4711 + ranks, .environment = {{"XYLEM_SLICE", "1K"}}};
}

/// The sum of (rank + 1) * factor over all ranks.
std::int64_t expected_sum(std::uint32_t ranks, std::int64_t factor) {
  return static_cast<std::int64_t>(ranks) * (ranks + 1) / 2 * factor;
}

TEST_P(Concurrency, TwoAllReducesInFlightOnOneCommunicator) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    std::vector<std::int64_t> a(3000, world.rank() + 1), b(50, 10 * (world.rank() + 1)),
        sum_a(3000), sum_b(50);
    for (int round = 0; round < 20; ++round) {
      const Work first = world.all_reduce(std::span<const std::int64_t>(a), std::span(sum_a));
      const Work second = world.all_reduce(std::span<const std::int64_t>(b), std::span(sum_b));
      // Waits for the calls in the reverse of their order.
      ASSERT_TRUE(second.wait().is_ok());
      ASSERT_TRUE(first.wait().is_ok());
      ASSERT_EQ(sum_a[2999], expected_sum(world.size(), 1));
      ASSERT_EQ(sum_b[49], expected_sum(world.size(), 10));
    }
  });
}

TEST_P(Concurrency, MoreOperationsThanMayRunAtOnceWaitTheirTurn) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    constexpr int kOperations = 200;
    std::vector<std::int64_t> in(kOperations), out(kOperations);
    std::vector<Work> works;
    for (int i = 0; i < kOperations; ++i) {
      in[i] = i * (world.rank() + 1);
      works.push_back(world.all_reduce(ConstBuffer(&in[i], 1, DataType::int64),
                                       Buffer(&out[i], 1, DataType::int64)));
    }
    for (int i = 0; i < kOperations; ++i) {
      ASSERT_TRUE(works[i].wait().is_ok());
      ASSERT_EQ(out[i], expected_sum(world.size(), i));
    }
  });
}

/// Each rank runs eight threads over three communicators. All ranks call on one communicator in the
/// same order, but the order across communicators differs.
void eight_threads_over_three_communicators(const RankOptions& options) {
  run_ranks(options, [&options](const Communicator& world) {
    auto second = world.duplicate(), third = world.duplicate();
    ASSERT_TRUE(second.is_ok() && third.is_ok());
    const Communicator comms[] = {world, *second, *third};
    // Threads 0 to 2 call collectives, each on its own communicator. Threads 3 to 7 exchange
    // messages on all communicators, each under its own tags.
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(options.seed * 31 + world.rank() * 8 + static_cast<std::uint32_t>(t));
        for (int round = 0; round < 25; ++round) {
          if (t < 3) {
            std::vector<std::int64_t> in(1 + 97 * static_cast<std::size_t>(round),
                                         world.rank() + 1),
                out(in.size());
            const auto status =
                comms[t].all_reduce(std::span<const std::int64_t>(in), std::span(out)).wait();
            ASSERT_TRUE(status.is_ok()) << status.to_string();
            ASSERT_EQ(out.back(), expected_sum(world.size(), 1));
            if (round % 5 == static_cast<int>(random() % 5)) std::this_thread::yield();
          } else {
            const Communicator& comm = comms[round % 3];
            const auto n = comm.size(), me = comm.rank();
            const auto tag = static_cast<std::uint32_t>(t * 100 + round);
            std::vector<std::int32_t> in(1 + random() % 1, static_cast<std::int32_t>(me)), out(1);
            const Work receive = comm.recv(std::span(out), (me + n - 1) % n, tag);
            const Work send = comm.send(std::span<const std::int32_t>(in), (me + 1) % n, tag);
            const auto status = wait_all(receive, send);
            ASSERT_TRUE(status.is_ok()) << status.to_string();
            ASSERT_EQ(out[0], static_cast<std::int32_t>((me + n - 1) % n));
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST_P(Concurrency, EightThreadsOverThreeCommunicators) {
  eight_threads_over_three_communicators(loopback(GetParam()));
}

TEST(ConcurrencyOverSharedMemory, EightThreadsOverThreeCommunicators) {
  RankOptions options{.size = 2, .transport = "shm"};
  eight_threads_over_three_communicators(options);
}

TEST_P(Concurrency, ManyMessagesInFlightKeepTheirOrder) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    const auto n = world.size(), me = world.rank();
    constexpr int kMessages = 100;
    std::vector<std::vector<std::uint32_t>> in, out;
    std::vector<Work> works;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const std::size_t count = i % 3 == 0   ? 1
                                : i % 3 == 1 ? 500
                                             // Some messages fit into the header, and others have a
                                             // body.
                                             : 3000;
      in.emplace_back(count, me * 1000 + i);
      out.emplace_back(count);
    }
    for (int i = 0; i < kMessages; ++i)
      works.push_back(world.send(std::span<const std::uint32_t>(in[i]), (me + 1) % n, 5));
    for (int i = 0; i < kMessages; ++i)
      works.push_back(world.recv(std::span(out[i]),
                                 i % 2 == 0 ? std::optional((me + n - 1) % n) : std::nullopt, 5));
    for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
    for (std::uint32_t i = 0; i < kMessages; ++i)
      ASSERT_EQ(out[i].back(), (me + n - 1) % n * 1000 + i);
  });
}

TEST_P(Concurrency, AnySourceSaysWhoseMessageItTook) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    std::uint32_t mine = world.rank();
    const Work send = world.send(ConstBuffer(&mine, 1, DataType::uint32), 0, 9);
    if (world.rank() == 0) {
      std::vector<bool> seen(world.size(), false);
      for (std::uint32_t i = 0; i < world.size(); ++i) {
        std::uint32_t got = ~0U;
        const Work receive = world.recv(Buffer(&got, 1, DataType::uint32), std::nullopt, 9);
        ASSERT_TRUE(receive.wait().is_ok());
        ASSERT_EQ(receive.source(), got);
        ASSERT_FALSE(seen[got]);
        seen[got] = true;
      }
    }
    ASSERT_TRUE(send.wait().is_ok());
  });
}

TEST_P(Concurrency, SplitsOfSplitsAreIsolated) {
  run_ranks(loopback(GetParam()), [](const Communicator& world) {
    const auto color = static_cast<std::int32_t>(world.rank() % 2);
    auto half = world.split(color, -static_cast<std::int32_t>(world.rank()));  // In reverse order.
    ASSERT_TRUE(half.is_ok()) << half.status().to_string();
    ASSERT_EQ(half->world_rank(half->rank()), world.rank());
    std::int64_t one = 1, sum = 0;
    ASSERT_TRUE(
        half->all_reduce(ConstBuffer(&one, 1, DataType::int64), Buffer(&sum, 1, DataType::int64))
            .wait()
            .is_ok());
    ASSERT_EQ(sum, half->size());
    for (int i = 0; i < 5; ++i) {
      auto again = value_of(half->duplicate());
      ASSERT_TRUE(again.barrier().wait().is_ok());
      ASSERT_TRUE(again.destroy().is_ok());
    }
    auto none = value_of(world.split(world.rank() == 0 ? -1 : 0, 0));
    ASSERT_EQ(static_cast<bool>(none), world.rank() != 0);
  });
}

}  // namespace
}  // namespace xylem::test
