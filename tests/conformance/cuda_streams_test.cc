// SPDX-License-Identifier: Apache-2.0
//
// Calls in the order of CUDA streams: commands enqueued before a call, the call itself, and
// commands enqueued after it run in this order. The thread that makes the call does not wait.
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
#include <functional>
#include <memory>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

class CudaStreams : public testing::Test {
 protected:
  /// Runs `body` on each rank. The ranks end together.
  void run(const std::function<void(const Communicator& world, const Stream& stream)>& body) {
    run_ranks(devices.options({{"XYLEM_SLICE", "4K"}}), [&](const Communicator& world) {
      body(world, stream_of(devices, world.rank()));
      EXPECT_TRUE(world.barrier().wait());
    });
  }

  CudaRanks devices{kRanks};
};

/// While the gate is closed, the rank's stream waits.
class Gate {
 public:
  Gate(CudaRanks& devices, std::uint32_t rank)
      : driver_(devices.driver()),
        memory_(devices.memory(rank)),
        word_(driver_, memory_.context()) {
    word_.words()[0] = word_.words()[1] = 0;
  }
  void close() const {
    const CurrentContext current(driver_, memory_.context());
    ASSERT_EQ(
        driver_.cuStreamWaitValue64(memory_.stream(), word_.address(), 1, CU_STREAM_WAIT_VALUE_GEQ),
        CUDA_SUCCESS);
  }
  void open() const { std::atomic_ref(word_.words()[0]).store(1, std::memory_order_release); }

 private:
  const Driver& driver_;
  const CudaMemory& memory_;
  const Pinned word_;
};

TEST_F(CudaStreams, OrderProducersCallsAndConsumers) {
  run([&](const Communicator& world, const Stream& stream) {
    Round round(devices, world.rank(), kRanks);
    check_rounds(round, world.on(stream), 50);
  });
}

// Many calls are under way at once. The thread waits only at the end.
TEST_F(CudaStreams, HoldManyCalls) {
  run([&](const Communicator& world, const Stream& stream) {
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < 40; ++number) {
      rounds.push_back(std::make_unique<Round>(devices, world.rank(), kRanks));
      works.push_back(rounds.back()->give(world.on(stream), number));
    }
    ASSERT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round->is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
  });
}

/// CPU time of this thread, in microseconds.
double thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// A closed gate delays the producers of all calls. The host opens it after it has made all calls,
// so a call that waited for its producer would never return.
TEST_F(CudaStreams, TakeCallsWhileTheyAreBusy) {
  constexpr std::uint32_t kCalls = 40;
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    const auto on_stream = world.on(stream);
    std::vector<std::unique_ptr<Round>> rounds;
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      rounds.push_back(std::make_unique<Round>(devices, rank, kRanks));
    }
    const Gate gate(devices, rank);
    gate.close();
    std::vector<double> times;
    std::vector<Work> works;
    for (std::uint32_t number = 0; number < kCalls; ++number) {
      rounds[number]->produce(number);
      const double begin = thread_time();
      works.push_back(on_stream.all_reduce(rounds[number]->buffer(), rounds[number]->buffer()));
      times.push_back(thread_time() - begin);
      rounds[number]->consume();
    }
    EXPECT_TRUE(world.barrier().wait());
    {
      const CurrentContext current(devices.driver(), devices.memory(rank).context());
      EXPECT_EQ(devices.driver().cuStreamQuery(devices.memory(rank).stream()),
                CUDA_ERROR_NOT_READY);
    }
    for (const Work& work : works) EXPECT_FALSE(work.test());
    EXPECT_TRUE(world.barrier().wait());
    gate.open();
    ASSERT_EQ(rounds.back()->wait(), CUDA_SUCCESS);
    for (const auto& round : rounds) EXPECT_TRUE(round->is_right());
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    std::ranges::sort(times);
    std::printf("rank %u: a call takes %.1f us of CPU time (median of %u)\n", rank,
                times[kCalls / 2], kCalls);
  });
}

// The program of the tests above, without the order of a stream. Its results are wrong, which shows
// that the tests above can fail. Not with the thread sanitizer, which would report these races.
TEST_F(CudaStreams, AreNeededForThat) {
  if (kHasThreadSanitizer) return;
  if (!is_stand_in()) GTEST_SKIP() << "a GPU may happen to be quick enough for each call";
  run([&](const Communicator& world, const Stream&) {
    Round round(devices, world.rank(), kRanks);
    std::uint32_t wrong = 0;
    for (std::uint32_t number = 1; number <= 100; ++number) {
      const Work work = round.give(world, number);
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(work.wait());
      wrong += round.is_right() ? 0 : 1;
    }
    EXPECT_GT(wrong, 0U);
  });
}

// The calls are made with Communicator::after(): the stream continues while the call waits for rank
// 0. The stream waits only after Work::block().
TEST_F(CudaStreams, WaitWhereTheyAreTold) {
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    auto part = value_of(world.duplicate());
    Round round(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 10; ++number) {
      round.produce(number);
      Work work;
      if (rank != 0) {
        work = part.after(stream).all_reduce(round.buffer(), round.buffer());
        ASSERT_EQ(round.wait(), CUDA_SUCCESS);
        EXPECT_FALSE(work.test());
      }
      EXPECT_TRUE(world.barrier().wait());
      if (rank == 0) work = part.after(stream).all_reduce(round.buffer(), round.buffer());
      // Calling block() twice, and perhaps after the call has ended, is allowed.
      ASSERT_TRUE(work.block(stream));
      ASSERT_TRUE(work.block(stream));
      round.consume();
      ASSERT_EQ(round.wait(), CUDA_SUCCESS);
      ASSERT_TRUE(round.is_right()) << "round " << number;
      ASSERT_TRUE(work.wait());
      EXPECT_TRUE(work.block(stream));
    }
  });
}

TEST_F(CudaStreams, DevicesAreMadeReadyBeforeTheFirstCall) {
  run([&](const Communicator& world, const Stream& stream) {
    EXPECT_TRUE(world.prepare(Memory{}));
    EXPECT_TRUE(world.prepare(stream.device));
    EXPECT_EQ(world.prepare({MemoryKind::rocm, 0}).code(), Code::unsupported);
    EXPECT_EQ(Communicator().prepare(stream.device).code(), Code::invalid_argument);
  });
}

TEST_F(CudaStreams, DoNotWaitForCallsOnOtherMemory) {
  run([&](const Communicator& world, const Stream& stream) {
    std::uint32_t word = 0;
    const Buffer buffer(&word, 1, DataType::uint32);
    Work work;
    if (world.rank() == 0) {
      work = world.recv(buffer, 1);
      EXPECT_EQ(work.block(stream).code(), Code::invalid_argument);
    }
    EXPECT_TRUE(world.barrier().wait());
    if (world.rank() == 1) work = world.send(buffer, 0);
    EXPECT_TRUE(work.wait());
    if (world.rank() == 0) {
      EXPECT_TRUE(work.block(stream));
    }
  });
}

TEST_F(CudaStreams, GoOnWhenTheCallFails) {
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    auto part = value_of(world.duplicate());
    Round round(devices, rank, kRanks);
    // Rank 0 does not call, so the streams of the other ranks wait until rank 0 aborts.
    if (rank != 0) {
      const bool is_held = rank == 1;
      // There is no consumer, since it would write to the buffer: after a failure, peers may still
      // read the buffer.
      const Work work = round.begin(is_held ? part.on(stream) : part.after(stream), 1);
      EXPECT_FALSE(work.test());
      EXPECT_TRUE(work.block(stream));
      EXPECT_TRUE(world.barrier().wait());
      EXPECT_EQ(round.wait(), CUDA_SUCCESS);
      EXPECT_EQ(work.wait().code(), Code::cancelled);
    } else {
      EXPECT_TRUE(world.barrier().wait());
      EXPECT_TRUE(part.abort("the test"));
    }
  });
}

TEST_F(CudaStreams, OrderMessages) {
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    const auto on_stream = world.on(stream);
    Round sent(devices, rank, kRanks), received(devices, rank, kRanks);
    const std::uint32_t to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
    const Work send = on_stream.send(sent.buffer(), to);
    const Work receive = on_stream.recv(received.buffer(), from);
    EXPECT_EQ(received.wait(), CUDA_SUCCESS);
    EXPECT_TRUE(send.wait());
    EXPECT_TRUE(receive.wait());
    EXPECT_TRUE(on_stream.barrier().wait());
  });
}

TEST_F(CudaStreams, WaitForMessages) {
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    const auto after = world.after(stream);
    const std::uint32_t to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
    Round sent(devices, rank, kRanks), received(devices, rank, kRanks);
    for (std::uint32_t number = 0; number < 20; ++number) {
      // Short messages pass through host memory.
      Buffer output = sent.buffer(), input = received.buffer();
      output.count = input.count = number % 2 == 0 ? kCount : 10;
      sent.produce(number);
      const Work receive = after.recv(input, from);
      const Work send = after.send(output, to);
      EXPECT_TRUE(receive.block(stream));
      EXPECT_TRUE(send.block(stream));
      received.consume();
      EXPECT_EQ(received.wait(), CUDA_SUCCESS);
      EXPECT_EQ(received.first(), 10 * number + from);
      EXPECT_TRUE(send.wait());
      EXPECT_TRUE(receive.wait());
    }
  });
}

// A gate holds the sender's stream. The stream's messages must wait too, even those without bytes.
TEST_F(CudaStreams, HoldMessagesBackUntilTheirTurn) {
  run([&](const Communicator& world, const Stream& stream) {
    const std::uint32_t rank = world.rank();
    const Gate gate(devices, rank);
    const Buffer empty(nullptr, 0, DataType::uint32, devices.kind(rank));
    Work work = world.barrier();
    EXPECT_TRUE(work.wait());
    if (rank == 0) {
      gate.close();
      work = world.on(stream).send(empty, 1);
    } else if (rank == 1) {
      work = world.recv(empty, 0);
    }
    EXPECT_TRUE(world.barrier().wait());
    EXPECT_EQ(work.test(), rank == 2);
    EXPECT_TRUE(world.barrier().wait());
    if (rank == 0) gate.open();
    EXPECT_TRUE(work.wait());
    const CurrentContext current(devices.driver(), devices.memory(rank).context());
    EXPECT_EQ(devices.driver().cuStreamSynchronize(devices.memory(rank).stream()), CUDA_SUCCESS);
  });
}

TEST(CudaStream, ThatTakesNoMoreGatesIsAnError) {
  CudaRanks devices(1);
  if (!is_stand_in()) GTEST_SKIP() << "a stream of a GPU lets the caller wait after some hundreds";
  run_ranks(devices.options(), [&](const Communicator& world) {
    const Gate gate(devices, 0);
    gate.close();
    const auto on_stream = world.on(stream_of(devices, 0));
    std::vector<Work> works;
    Status refused;
    while (refused && works.size() < 10'000) {
      works.push_back(on_stream.barrier());
      if (works.back().test()) refused = works.back().status();
    }
    EXPECT_EQ(refused.code(), Code::exhausted) << refused.to_string();
    works.pop_back();
    gate.open();
    for (const Work& work : works) EXPECT_TRUE(work.wait());
    EXPECT_TRUE(on_stream.barrier().wait());
  });
}

}  // namespace
}  // namespace xylem::test
