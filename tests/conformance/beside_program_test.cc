// SPDX-License-Identifier: Apache-2.0
//
// Work::wait_beside_program(): a thread waits for calls while the thread that made them computes,
// or waits for that thread.
#include "conformance/over_transports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace xylem::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class BesideProgram : public OverTransports {
 protected:
  static RankOptions options() { return OverTransports::options(11); }
};

INSTANTIATE_TEST_SUITE_P(Transports, BesideProgram, OverTransports::all(), OverTransports::name);

/// Waits as a thread does that completes futures, on a thread of its own.
Status wait_beside(const Work& work, std::atomic<bool>& has_ended) {
  Status status;
  do {
    status = work.wait_beside_program(milliseconds(20));
  } while (status.code() == Code::timed_out && !work.ended());
  has_ended = true;
  return status;
}

TEST_P(BesideProgram, CallsEndWhetherTheProgramComputesOrWaits) {
  run_ranks(options(), [](Runtime& runtime, MemoryHub&) {
    const Communicator world = runtime.world();
    // Each rank decides for itself, so that computing and waiting programs meet.
    std::mt19937_64 random(world.rank());
    for (const std::size_t count : {1U, 900U, 60'000U, 1'500'000U, 3U, 700'000U}) {
      std::vector<std::int64_t> mine(count, world.rank()), got(count);
      const Work work = world.all_reduce({mine.data(), count, DataType::int64},
                                         {got.data(), count, DataType::int64});
      std::atomic<bool> has_ended{false};
      Status status;
      std::thread beside([&] { status = wait_beside(work, has_ended); });
      if (random() % 2 == 0) {
        while (!has_ended) {
        }
      }
      beside.join();
      ASSERT_TRUE(status.is_ok()) << status.to_string();
      const auto size = std::int64_t{world.size()};
      ASSERT_EQ(got, std::vector<std::int64_t>(count, size * (size - 1) / 2));
    }
  });
}

TEST_P(BesideProgram, ManyCallsOfTwoThreads) {
  run_ranks(options(), [](Runtime& runtime, MemoryHub&) {
    const Communicator world = runtime.world();
    constexpr int kRounds = 40, kCalls = 6;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::vector<std::int32_t>> values;
      std::vector<Work> works;
      for (int call = 0; call < kCalls; ++call) {
        const std::size_t count = (call + round) % 3 == 0 ? 40'000 : 17;
        values.emplace_back(count, 1);
        auto& value = values.back();
        works.push_back(world.all_reduce({value.data(), count, DataType::int32},
                                         {value.data(), count, DataType::int32}));
      }
      Status late;
      std::atomic<bool> has_ended{false};
      std::thread beside([&] { late = wait_beside(works.back(), has_ended); });
      // The program waits for some of the calls itself, like any thread.
      for (int call = 0; call < kCalls / 2; ++call) EXPECT_TRUE(works[call].wait().is_ok());
      beside.join();
      ASSERT_TRUE(late.is_ok()) << late.to_string();
      for (const Work& work : works) ASSERT_TRUE(work.wait().is_ok());
      for (const auto& value : values) {
        ASSERT_EQ(value, std::vector<std::int32_t>(value.size(), world.size()));
      }
    }
  });
}

TEST_P(BesideProgram, TheLimitOfAWaitHolds) {
  if (options().size == 1) return;  // Its calls end at once.
  std::latch is_over(options().size);
  run_ranks(options(), [&](Runtime& runtime, MemoryHub&) {
    const Communicator world = runtime.world();
    std::int64_t value = 1;
    const auto call = [&] {
      return world.all_reduce({&value, 1, DataType::int64}, {&value, 1, DataType::int64});
    };
    Work work;
    if (world.rank() != 0) {
      work = call();
      EXPECT_EQ(work.wait_beside_program(milliseconds(30)).code(), Code::timed_out);
    }
    is_over.arrive_and_wait();
    if (world.rank() == 0) work = call();
    EXPECT_TRUE(work.wait_beside_program(seconds(30)).is_ok());
    EXPECT_EQ(value, world.size());
  });
}

TEST(BesideNoProgram, AnEmptyWorkHasEnded) {
  EXPECT_TRUE(Work().wait_beside_program(milliseconds(1)).is_ok());
}

}  // namespace
}  // namespace xylem::test
