// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one host read each other's device memory directly. The tests count the copies that the
// stand-in for the CUDA driver makes. The driver of a GPU does not count copies: then only the
// results are checked.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "xylem/runtime/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <numeric>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint64_t kCount = 300'000;  // More than a slot of shared memory holds.

using Words = std::vector<std::uint32_t>;

/// A function of the stand-in; null with the driver of a GPU.
template <typename Function>
Function find_in_driver(const char* function) {
  const char* const name = std::getenv("CUDA_DRIVER");
  void* const driver = dlopen(name == nullptr ? "libcuda.so.1" : name, RTLD_NOW | RTLD_NOLOAD);
  const auto found = reinterpret_cast<Function>(dlsym(driver, function));
  dlclose(driver);
  return found;
}

/// How many objects of a kind the stand-in has; 0 if the driver is a GPU's.
std::size_t live(const char* kind) {
  const auto count = find_in_driver<std::size_t (*)(const char*)>("fake_cuda_live");
  return count == nullptr ? 0 : count(kind);
}

/// What the driver was asked for since.
struct Copies {
  unsigned long made = 0, waited_for = 0, questions = 0, handles = 0, pinned = 0;

  static Copies so_far() {
    unsigned long made = 0;
    for (const char* copy : {"cuMemcpyAsync", "xylem_reduce_or_uint8", "xylem_reduce_or_uint16",
                             "xylem_reduce_or_uint32", "xylem_reduce_or_uint64"}) {
      made += calls_of_stand_in(copy);
    }
    return {made, calls_of_stand_in("cuStreamSynchronize"),
            calls_of_stand_in("cuPointerGetAttributes"), calls_of_stand_in("cuIpcGetMemHandle"),
            calls_of_stand_in("cuMemHostAlloc") + calls_of_stand_in("cuMemHostRegister")};
  }
  Copies since(const Copies& before) const {
    return {made - before.made, waited_for - before.waited_for, questions - before.questions,
            handles - before.handles, pinned - before.pinned};
  }
};

/// A rank's buffers.
class Buffers {
 public:
  Buffers(CudaRanks& devices, std::uint32_t rank)
      : memory_(devices.memory(rank)), kind_(devices.kind(rank)) {}

  Buffer make(std::uint64_t count) {
    return {memory_.allocate(count * sizeof(std::uint32_t)), count, DataType::uint32, kind_};
  }
  /// first, first + 1, …
  Buffer make(std::uint64_t count, std::uint32_t first) {
    const Buffer made = make(count);
    fill(made, first);
    return made;
  }
  void fill(const Buffer& buffer, std::uint32_t first) const {
    Words words(buffer.count);
    std::iota(words.begin(), words.end(), first);
    memory_.write(static_cast<std::byte*>(buffer.data), words.data(), buffer.bytes());
  }
  Words read(const Buffer& buffer) const {
    Words words(buffer.count);
    memory_.read(words.data(), static_cast<const std::byte*>(buffer.data), buffer.bytes());
    return words;
  }
  Stream stream() const { return {memory_.stream(), kind_}; }

 private:
  CudaMemory& memory_;
  const Memory kind_;
};

/// A message from each rank to the next one.
struct Ring {
  Ring(Buffers& its_buffers, std::uint32_t rank, std::uint32_t ranks)
      : to((rank + 1) % ranks),
        from((rank + ranks - 1) % ranks),
        sent(its_buffers.make(kCount, 10 * rank)),
        received(its_buffers.make(kCount)),
        buffers(its_buffers) {}
  bool is_right() const {
    Words expected(kCount);
    std::iota(expected.begin(), expected.end(), 10 * from);
    return buffers.read(received) == expected;
  }

  const std::uint32_t to, from;
  const Buffer sent, received;
  const Buffers& buffers;
};

/// Lets all ranks do something, and counts the copies that this takes together. Every rank gets the
/// same result.
template <typename Do>
Copies count_copies(const Communicator& world, const Do& act) {
  EXPECT_TRUE(world.barrier().wait());
  const Copies before = Copies::so_far();
  EXPECT_TRUE(world.barrier().wait());
  act();
  EXPECT_TRUE(world.barrier().wait());
  const Copies after = Copies::so_far();
  EXPECT_TRUE(world.barrier().wait());
  return after.since(before);
}

class CudaDirect : public testing::TestWithParam<std::uint32_t> {
 protected:
  /// Runs `body` on each rank, with these XYLEM_ variables, and waits for all ranks at the end.
  void run(const runtime::Environment& environment,
           const std::function<void(const Communicator& world, Buffers& buffers)>& body) {
    run_ranks(devices.options(environment), [&](const Communicator& world) {
      Buffers buffers(devices, world.rank());
      body(world, buffers);
      EXPECT_TRUE(world.barrier().wait());
    });
  }
  /// Expects the sums, by element, of what starts with `first` at rank 0 and one higher at each
  /// further rank.
  void expect_sums(const Words& got, std::uint64_t first) const {
    for (std::uint64_t i = 0; i < got.size(); ++i) {
      const auto sum = ranks * (first + i) + ranks * (ranks - 1) / 2;
      ASSERT_EQ(got[i], static_cast<std::uint32_t>(sum)) << i;
    }
  }

  const std::uint32_t ranks = GetParam();
  CudaRanks devices{ranks};
};

TEST_P(CudaDirect, GathersWithOneCopyOfEachPart) {
  run({{"XYLEM_ALGORITHM", "direct"}, {"XYLEM_SLICE", "64K"}},
      [&](const Communicator& world, Buffers& buffers) {
        constexpr std::uint64_t kPart = 10 << 14;  // Ten slices.
        const Buffer input = buffers.make(kPart, 1000 * world.rank());
        const Buffer output = buffers.make(ranks * kPart);
        const Copies copies =
            count_copies(world, [&] { EXPECT_TRUE(world.all_gather(input, output).wait()); });
        EXPECT_EQ(copies.waited_for, 0);
        EXPECT_EQ(copies.pinned, 0);
        // A rank's own part is copied as one. Slices of others gather while the device is busy.
        if (is_stand_in()) {
          EXPECT_LE(copies.made, ranks + ranks * (ranks - 1) * 10);
          EXPECT_GE(copies.made, ranks * ranks);
        }
        const Words got = buffers.read(output);
        for (std::uint64_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i], 1000 * (i / kPart) + i % kPart) << i;
        }
      });
}

TEST_P(CudaDirect, ReducesWhereTheInputsLie) {
  run({{"XYLEM_ALGORITHM", "direct"}}, [&](const Communicator& world, Buffers& buffers) {
    const Buffer input = buffers.make(ranks * kCount, world.rank());
    const Buffer output = buffers.make(kCount);
    const Copies copies = count_copies(
        world, [&] { EXPECT_TRUE(world.reduce_scatter(input, output, RedOp::sum).wait()); });
    EXPECT_EQ(copies.waited_for, 0);
    EXPECT_EQ(copies.pinned, 0);
    // Alone, a rank copies its input.
    if (is_stand_in() && ranks > 1) {
      EXPECT_EQ(copies.made, 0);
    }
    expect_sums(buffers.read(output), world.rank() * kCount);
  });
}

TEST_P(CudaDirect, MovesMessagesWithOneCopy) {
  if (ranks == 1) return;  // A message to oneself goes through the host.
  run({}, [&](const Communicator& world, Buffers& buffers) {
    const Ring ring(buffers, world.rank(), ranks);
    const Copies copies = count_copies(world, [&] {
      const Work receive = world.recv(ring.received, ring.from);
      const Work send = world.send(ring.sent, ring.to);
      EXPECT_TRUE(receive.wait());
      EXPECT_TRUE(send.wait());
    });
    EXPECT_EQ(copies.waited_for, 0);
    EXPECT_EQ(copies.pinned, 0);
    if (is_stand_in()) {
      EXPECT_EQ(copies.made, ranks);
    }
    EXPECT_TRUE(ring.is_right());
  });
}

// The stream of each rank waits for its send, and then for its receive. So the message must leave
// the sender's memory although the receive's turn has not come.
TEST_P(CudaDirect, LetsSendsEndBeforeReceivesBehindThem) {
  run({}, [&](const Communicator& world, Buffers& buffers) {
    const Ring ring(buffers, world.rank(), ranks);
    const auto on_stream = world.on(buffers.stream());
    const Work send = on_stream.send(ring.sent, ring.to);
    const Work receive = on_stream.recv(ring.received, ring.from);
    EXPECT_TRUE(receive.wait());
    EXPECT_TRUE(send.wait());
    EXPECT_TRUE(ring.is_right());
  });
}

// However many slices a call has, the driver is asked about each of its buffers once. That a
// buffer's memory is stated is checked, too.
TEST_P(CudaDirect, AsksTheDriverOnceInACall) {
  run({{"XYLEM_ALGORITHM", "direct"}, {"XYLEM_SLICE", "16K"}},
      [&](const Communicator& world, Buffers& buffers) {
        constexpr std::uint64_t kPart = 40 << 12;  // Forty slices.
        const Buffer input = buffers.make(kPart, 1000 * world.rank());
        const Buffer output = buffers.make(ranks * kPart);
        const auto gather = [&] { EXPECT_TRUE(world.all_gather(input, output).wait()); };
        gather();
        const Copies asked = count_copies(world, gather);
        if (is_stand_in()) {
          EXPECT_EQ(asked.questions, ranks == 1 ? 2 : 3 * ranks);
        }
        EXPECT_EQ(asked.handles, 0);
      });
}

// Partial results of a ring lie in scratch of their devices, where the next rank reads them.
TEST_P(CudaDirect, SharesPartialResults) {
  run({{"XYLEM_ALGORITHM", "ring"}}, [&](const Communicator& world, Buffers& buffers) {
    constexpr std::uint64_t kPart = kCount / 4;
    const Buffer input = buffers.make(ranks * kPart, world.rank());
    const Buffer output = buffers.make(kPart);
    const Copies first = count_copies(
        world, [&] { EXPECT_TRUE(world.reduce_scatter(input, output, RedOp::sum).wait()); });
    // Of a rank's buffers, which are in one allocation, and of its scratch.
    if (is_stand_in() && ranks > 2) {
      EXPECT_EQ(first.handles, 2 * ranks);
    }
    expect_sums(buffers.read(output), world.rank() * kPart);
  });
}

// Memory is freed after each call, and the driver gives its addresses to memory of another size.
TEST_P(CudaDirect, NoticesMemoryThatIsAllocatedAgain) {
  std::latch all_freed[8] = {std::latch(ranks), std::latch(ranks), std::latch(ranks),
                             std::latch(ranks), std::latch(ranks), std::latch(ranks),
                             std::latch(ranks), std::latch(ranks)};
  run({}, [&](const Communicator& world, Buffers& buffers) {
    for (std::uint32_t round = 0; round < 8; ++round) {
      const std::uint64_t count = (8 - round) * 9'000;
      {
        const auto memory =
            value_of(allocate(count * sizeof(std::uint32_t), devices.kind(world.rank())));
        const Buffer buffer(memory.data(), count, DataType::uint32, memory.memory());
        buffers.fill(buffer, world.rank() + round);
        ASSERT_TRUE(world.all_reduce(buffer, buffer, RedOp::sum).wait());
        expect_sums(buffers.read(buffer), round);
      }
      all_freed[round].arrive_and_wait();
    }
  });
}

// Odd ranks have their buffers on the host, and read no device memory.
TEST_P(CudaDirect, CopiesToTheHostWithoutWaiting) {
  run({}, [&](const Communicator& world, Buffers& buffers) {
    const std::uint32_t rank = world.rank();
    const bool is_on_host = rank % 2 == 1;
    Words in(kCount), out(ranks * kCount);
    std::iota(in.begin(), in.end(), 1000 * rank);
    const Buffer input = is_on_host ? Buffer(in.data(), kCount, DataType::uint32, Memory{})
                                    : buffers.make(kCount, 1000 * rank);
    const Buffer output = is_on_host
                              ? Buffer(out.data(), ranks * kCount, DataType::uint32, Memory{})
                              : buffers.make(ranks * kCount);
    if (is_stand_in() && ranks > 1) {
      EXPECT_EQ(live("registration"), ranks) << "the memory that ranks share";
    }
    const Copies copies =
        count_copies(world, [&] { EXPECT_TRUE(world.all_gather(input, output).wait()); });
    EXPECT_EQ(copies.waited_for, 0);
    if (!is_on_host) out = buffers.read(output);
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], 1000 * (i / kCount) + i % kCount) << i;
    }
  });
}

/// Lets calls of the stand-in fail (FAKE_CUDA_FAULTS) while the object exists. No device may be in
/// use when it begins or ends.
class Faults {
 public:
  explicit Faults(const char* faults) {
    ::setenv("FAKE_CUDA_FAULTS", faults, 1);
    begin_anew();
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  ~Faults() {
    ::unsetenv("FAKE_CUDA_FAULTS");
    begin_anew();
  }

 private:
  static void begin_anew() { find_in_driver<void (*)()>("fake_cuda_reset")(); }
};

// The message has many pieces. The driver refuses to copy the third one, or the device is lost
// then.
TEST(CudaDirectFaults, EndTheCommunicatorIfAMessageCannotBeCopiedToTheHost) {
  { const CudaRanks loads_the_driver(1); }
  if (!is_stand_in()) return;
  for (const char* fault : {"cuLaunchKernel:4=1", "cuStreamWriteValue64_v2:3=719"}) {
    SCOPED_TRACE(fault);
    const Faults faults(fault);
    CudaRanks devices(2);
    run_ranks(devices.options(), [&](const Communicator& world) {
      Buffers buffers(devices, world.rank());
      Words words(kCount);
      const Status ended =
          world.rank() == 0
              ? world.send(buffers.make(kCount, 0), 1).wait()
              : world.recv(Buffer(words.data(), kCount, DataType::uint32, Memory{}), 0).wait();
      EXPECT_THAT(ended, fails_as(Code::internal, "CUDA device 0: CUDA's cu"));
      EXPECT_FALSE(world.barrier().wait());
    });
  }
}

TEST(CudaCounts, ALargeCallTakesFewPiecesAndNoBytesThroughTheHost) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kMiB = 64;
  constexpr std::uint64_t kElements = (kMiB << 20) / sizeof(std::uint32_t);
  CudaRanks devices(kRanks, (kMiB + 1) << 20);
  run_ranks(devices.options(), [&](Runtime& runtime, MemoryHub& /*hub*/) {
    const Communicator world = runtime.world();
    Buffers buffers(devices, world.rank());
    const Buffer data = buffers.make(kElements, world.rank());
    const Counters before = runtime.counters();
    EXPECT_TRUE(world.all_reduce(data, data, RedOp::sum).wait());
    const Counters used = runtime.counters() - before;
    Words expected(kElements);
    std::iota(expected.begin(), expected.end(), 0U);
    for (std::uint32_t& word : expected) word = kRanks * word + 6;  // 0 + 1 + 2 + 3
    EXPECT_EQ(buffers.read(data), expected);
    EXPECT_EQ(used.staged_bytes, 0U);
    EXPECT_GE(used.announced, 1U);
    // A device that is late gets large pieces.
    if (is_stand_in()) {
      EXPECT_LE(used.pieces, 4 * kMiB);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaDirect, testing::Values(1U, 2U, 3U, 5U, 8U));

}  // namespace
}  // namespace xylem::test
