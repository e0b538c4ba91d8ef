// SPDX-License-Identifier: Apache-2.0
//
// Work::wait_beside_program(): one thread waits for a call, while the thread that made the call
// computes, or waits for the first thread.
#include "conformance/over_transports.h"
#include "support/sanitizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <latch>
#include <ostream>
#include <random>
#include <string>
#include <thread>
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

/// Waits for a call as a thread does that completes futures. It is not the thread that made the
/// call.
Status wait_beside(const Work& work, std::atomic<bool>& has_ended) {
  // A time-out of a wait does not mean that the call is still under way: it may have ended
  // meanwhile.
  while (!work.ended()) (void)work.wait_beside_program(milliseconds(20));
  has_ended = true;
  return work.wait();
}

TEST_P(BesideProgram, CallsEndWhetherTheProgramComputesOrWaits) {
  run_ranks(options(), [](const Communicator& world) {
    // Each rank draws for itself, so ranks that compute take part in calls with ranks that wait.
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
  run_ranks(options(), [](const Communicator& world) {
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
      // The thread that made the calls waits for some of them with Work::wait().
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
  if (options().size == 1) return;  // The calls of a single rank end at once.
  std::latch is_over(options().size);
  run_ranks(options(), [&](const Communicator& world) {
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

/// What a rank's threads do while a peer is late.
struct Late {
  std::string name;
  bool computes = false;          ///< The calling thread computes meanwhile; otherwise it waits.
  bool is_second_thread = false;  ///< The calls are made on a second thread.
  bool receives = false;          ///< The call is a receive, and this rank has made no call before.
  /// Limit for the processor time of the thread in wait_beside_program(), in milliseconds. Expected
  /// are 2 ms if the calling thread computes, and 30 ms if it waits. If Xylem confuses these two
  /// cases, it is 17 to 260 ms.
  double most_used = 10;
};
void PrintTo(const Late& late, std::ostream* out) { *out << late.name; }

class BesideLatePeer : public ::testing::TestWithParam<Late> {};

double cpu_milliseconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

// The test limits processor time, not elapsed time, so a busy machine does not make it fail.
TEST_P(BesideLatePeer, TheWaitingThreadLeavesTheCoreToOthers) {
  constexpr milliseconds kLateness{500};
  const Late& late = GetParam();
  RankOptions options{.size = 2, .transport = "shm"};
  std::latch is_ready(2);
  std::promise<void> is_late;
  auto lateness = is_late.get_future();
  double used = 0;
  run_ranks(options, [&](const Communicator& world) {
    std::vector<float> values(100'000);
    const Buffer buffer{values.data(), values.size(), DataType::float32};
    const auto reduce = [&] { return world.all_reduce(buffer, buffer); };
    if (late.is_second_thread) {
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(reduce().wait().is_ok());
    }
    is_ready.arrive_and_wait();
    if (world.rank() == 1) {
      lateness.wait_for(kLateness);  // This rank is late by this time.
      const Work work = late.receives ? world.send(buffer, 0, 1) : reduce();
      ASSERT_TRUE(work.wait().is_ok());
      return;
    }
    const auto program = [&] {
      const Work work = late.receives ? world.recv(buffer, 1, 1) : reduce();
      std::atomic<bool> has_ended{false};
      std::thread beside([&] {
        const double before = cpu_milliseconds();
        EXPECT_TRUE(wait_beside(work, has_ended).is_ok());
        used = cpu_milliseconds() - before;
      });
      while (late.computes && !has_ended) {
      }
      beside.join();
    };
    late.is_second_thread ? std::thread(program).join() : program();
  });
  EXPECT_LT(used, late.most_used * (kHasSanitizer ? 10 : 1));
}

INSTANTIATE_TEST_SUITE_P(
    While,
    BesideLatePeer,
    ::testing::Values(
        Late{.name = "TheProgramComputes", .computes = true},
        Late{.name = "TheProgramWaits", .most_used = 100},
        Late{.name = "AnotherThreadComputes", .computes = true, .is_second_thread = true},
        Late{.name = "TheProgramReceives", .computes = true, .receives = true}),
    [](const auto& tested) { return tested.param.name; });

TEST(BesideNoProgram, AnEmptyWorkHasEnded) {
  EXPECT_TRUE(Work().wait_beside_program(milliseconds(1)).is_ok());
}

}  // namespace
}  // namespace xylem::test
