// SPDX-License-Identifier: Apache-2.0
//
// Calls in the order of CUDA streams: commands that are enqueued before a call, the call itself,
// and commands that are enqueued after it run in this order. The calling thread does not wait.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/sanitizer.h"
#include "support/stream_round.h"

#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

RankOptions options_for(CudaRanks& devices) {
  RankOptions options{.size = kRanks, .transport = "shm"};
  options.environment["XYLEM_SLICE"] = "4K";
  options.devices = [&](std::uint32_t rank) { return devices.of_rank(rank); };
  return options;
}

TEST(CudaStreams, OrderProducersCallsAndConsumers) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    Round round(devices, runtime.rank(), kRanks);
    check_rounds(round, runtime.world().on(stream_of(devices, runtime.rank())), 50);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// Many calls are under way at once, and nobody waits for one of them.
TEST(CudaStreams, HoldManyCalls) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const auto world = runtime.world().on(stream_of(devices, rank));
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 40; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
      works.push_back(rounds.back()->give(world, number));
    }
    ASSERT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round->is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

/// CPU time of this thread, in microseconds.
double thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The producers of all calls are late: they stand behind a word that the host writes after it has
// made all calls. So a call that waited for its producer would never return.
TEST(CudaStreams, TakeCallsWhileTheyAreBusy) {
  constexpr std::uint32_t kCalls = 40;
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Driver& driver = devices.driver();
    const CudaMemory& memory = devices.memory(rank);
    const auto world = runtime.world().on(stream_of(devices, rank));
    std::vector<std::unique_ptr<Round>> rounds;
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
    }
    const Pinned word(driver, memory.context());
    word.words()[0] = word.words()[1] = 0;
    const CurrentContext current(driver, memory.context());
    ASSERT_EQ(
        driver.cuStreamWaitValue64(memory.stream(), word.address(), 1, CU_STREAM_WAIT_VALUE_GEQ),
        CUDA_SUCCESS);
    std::vector<double> times;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < kCalls; ++number) {
      rounds[number]->produce(number);
      const double begin = thread_time();
      works.push_back(world.all_reduce(rounds[number]->buffer(), rounds[number]->buffer()));
      times.push_back(thread_time() - begin);
      rounds[number]->consume();
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
    EXPECT_EQ(driver.cuStreamQuery(memory.stream()), CUDA_ERROR_NOT_READY);
    for (const Work& work : works) EXPECT_FALSE(work.test());
    EXPECT_TRUE(runtime.world().barrier().wait());
    std::atomic_ref(word.words()[0]).store(1, std::memory_order_release);
    ASSERT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round->is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    std::ranges::sort(times);
    std::printf("rank %u: a call takes %.1f us of CPU time (median of %u)\n", rank,
                times[kCalls / 2], kCalls);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// The same program without the stream's order is wrong, so the tests above can fail. The thread
// sanitizer would report that the copies race with the call, as they do.
TEST(CudaStreams, AreNeededForThat) {
  if (kHasThreadSanitizer) return;
  CudaRanks devices(kRanks);
  if (!is_stand_in()) GTEST_SKIP() << "a GPU may happen to be quick enough for each call";
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    Round round(devices, runtime.rank(), kRanks);
    std::uint32_t wrong = 0;
    for (std::uint32_t number = 1; number <= 100; ++number) {
      const Work work = round.give(runtime.world(), number);
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(work.wait());
      wrong += round.is_right() ? 0 : 1;
    }
    EXPECT_GT(wrong, 0U);
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// A call that does not hold its stream: the stream goes on while the call waits for rank 0, and
// waits only where Work::block() is called.
TEST(CudaStreams, WaitWhereTheyAreTold) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    auto part = value_of(runtime.world().duplicate());
    const Stream stream = stream_of(devices, rank);
    Round round(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 10; ++number) {
      round.produce(number);
      Work work;
      if (rank != 0) {
        work = part.after(stream).all_reduce(round.buffer(), round.buffer());
        ASSERT_EQ(round.wait(), CUDA_SUCCESS);
        EXPECT_FALSE(work.test());
      }
      EXPECT_TRUE(runtime.world().barrier().wait());
      if (rank == 0) work = part.after(stream).all_reduce(round.buffer(), round.buffer());
      // Twice, and perhaps after the end.
      ASSERT_TRUE(work.block(stream));
      ASSERT_TRUE(work.block(stream));
      round.consume();
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(round.is_right()) << "round " << number;
      ASSERT_TRUE(work.wait());
      EXPECT_TRUE(work.block(stream));
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaStreams, DevicesAreMadeReadyBeforeTheFirstCall) {
  CudaRanks devices(1);
  RankOptions options = options_for(devices);
  options.size = 1;
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    EXPECT_TRUE(world.prepare(Memory{}));
    EXPECT_TRUE(world.prepare(devices.kind(0)));
    EXPECT_EQ(world.prepare({MemoryKind::rocm, 0}).code(), Code::unsupported);
    EXPECT_EQ(Communicator().prepare(devices.kind(0)).code(), Code::invalid_argument);
  });
}

TEST(CudaStreams, DoNotWaitForCallsOnOtherMemory) {
  CudaRanks devices(2);
  RankOptions options = options_for(devices);
  options.size = 2;
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    std::uint32_t word = 0;
    const Buffer buffer(&word, 1, DataType::uint32);
    const auto world = runtime.world();
    if (runtime.rank() == 0) {
      const Work work = world.recv(buffer, 1);
      EXPECT_EQ(work.block(stream_of(devices, 0)).code(), Code::invalid_argument);
      EXPECT_TRUE(world.barrier().wait());
      EXPECT_TRUE(work.wait());
      EXPECT_TRUE(work.block(stream_of(devices, 0)));
    } else {
      EXPECT_TRUE(world.barrier().wait());
      EXPECT_TRUE(world.send(buffer, 0).wait());
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaStreams, GoOnWhenTheCallFails) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    auto part = value_of(runtime.world().duplicate());
    Round round(devices, rank, kRanks);
    // Rank 0 does not call, so the streams of the others wait until it aborts.
    if (rank != 0) {
      const Stream stream = stream_of(devices, rank);
      const bool is_held = rank == 1;
      // Without a consumer, which would write: after a failure, peers may still read the buffer.
      const Work work = round.begin(is_held ? part.on(stream) : part.after(stream), 1);
      EXPECT_FALSE(work.test());
      EXPECT_TRUE(work.block(stream));
      EXPECT_TRUE(runtime.world().barrier().wait());
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
      EXPECT_EQ(work.wait().code(), Code::cancelled);
    } else {
      EXPECT_TRUE(runtime.world().barrier().wait());
      EXPECT_TRUE(part.abort("the test"));
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

TEST(CudaStreams, OrderMessages) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const auto world = runtime.world().on(stream_of(devices, rank));
    Round sent(devices, rank, kRanks), received(devices, rank, kRanks);
    const std::uint32_t to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
    const Work send = world.send(sent.buffer(), to), receive = world.recv(received.buffer(), from);
    EXPECT_EQ(received.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(send.wait());
    EXPECT_TRUE(receive.wait());
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaStreams, WaitForMessages) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const Stream stream = stream_of(devices, rank);
    const auto world = runtime.world().after(stream);
    const std::uint32_t to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
    Round sent(devices, rank, kRanks), received(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 20; ++number) {
      // Short messages are copied to host memory first.
      Buffer output = sent.buffer(), input = received.buffer();
      output.count = input.count = number % 2 == 0 ? kCount : 10;
      sent.produce(number);
      const Work receive = world.recv(input, from);
      const Work send = world.send(output, to);
      EXPECT_TRUE(receive.block(stream));
      EXPECT_TRUE(send.block(stream));
      received.consume();
      EXPECT_EQ(received.wait(), CUDA_SUCCESS);
      EXPECT_EQ(received.first(), 10 * number + from);
      EXPECT_TRUE(send.wait());
      EXPECT_TRUE(receive.wait());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());
  });
}

// The stream of the sender waits for a word of the host, and so do its messages, also one without
// bytes.
TEST(CudaStreams, HoldMessagesBackUntilTheirTurn) {
  CudaRanks devices(kRanks);
  run_ranks(options_for(devices), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    const auto world = runtime.world();
    const Driver& driver = devices.driver();
    const CudaMemory& memory = devices.memory(rank);
    const Pinned word(driver, memory.context());
    word.words()[0] = word.words()[1] = 0;
    const Buffer empty(nullptr, 0, DataType::uint32, devices.kind(rank));
    Work work = world.barrier();
    EXPECT_TRUE(work.wait());
    if (rank == 0) {
      const CurrentContext current(driver, memory.context());
      ASSERT_EQ(
          driver.cuStreamWaitValue64(memory.stream(), word.address(), 1, CU_STREAM_WAIT_VALUE_GEQ),
          CUDA_SUCCESS);
      work = world.on(stream_of(devices, rank)).send(empty, 1);
    } else if (rank == 1) {
      work = world.recv(empty, 0);
    }
    EXPECT_TRUE(world.barrier().wait());
    EXPECT_EQ(work.test(), rank == 2);
    EXPECT_TRUE(world.barrier().wait());
    if (rank == 0) std::atomic_ref(word.words()[0]).store(1, std::memory_order_release);
    EXPECT_TRUE(work.wait());
    const CurrentContext current(driver, memory.context());
    EXPECT_EQ(driver.cuStreamSynchronize(memory.stream()), CUDA_SUCCESS);
  });
}

TEST(CudaStreams, ThatTakeNoMoreGatesAreAnError) {
  CudaRanks devices(1);
  if (!is_stand_in()) GTEST_SKIP() << "a stream of a GPU lets the caller wait after some hundreds";
  RankOptions options = options_for(devices);
  options.size = 1;
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const Driver& driver = devices.driver();
    const CudaMemory& memory = devices.memory(0);
    const Pinned word(driver, memory.context());
    word.words()[0] = word.words()[1] = 0;
    {
      const CurrentContext current(driver, memory.context());
      ASSERT_EQ(
          driver.cuStreamWaitValue64(memory.stream(), word.address(), 1, CU_STREAM_WAIT_VALUE_GEQ),
          CUDA_SUCCESS);
    }
    const auto world = runtime.world().on(stream_of(devices, 0));
    std::vector<Work> works;
    Status refused;
    while (refused && works.size() < 10'000) {
      works.push_back(world.barrier());
      if (works.back().test()) refused = works.back().status();
    }
    EXPECT_EQ(refused.code(), Code::exhausted) << refused.to_string();
    works.pop_back();
    std::atomic_ref(word.words()[0]).store(1, std::memory_order_release);
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    EXPECT_TRUE(world.barrier().wait());
  });
}

}  // namespace
}  // namespace xylem::test
