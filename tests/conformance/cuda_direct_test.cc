// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one host read each other's device memory where it lies. The tests count the copies that
// the stand-in for the driver makes; on a GPU's driver, which does not count, only the results are
// checked.
#include "support/cuda_ranks.h"
#include "support/ranks.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint64_t kCount = 300'000;  // More than a slot of shared memory holds.

using Words = std::vector<std::uint32_t>;

/// How often the stand-in's function was called; 0 if the driver is a GPU's.
unsigned long calls_of(const char* function) {
  const char* const name = std::getenv("CUDA_DRIVER");
  void* const driver = dlopen(name == nullptr ? "libcuda.so.1" : name, RTLD_NOW | RTLD_NOLOAD);
  using Count = unsigned long (*)(const char*);
  const auto count = reinterpret_cast<Count>(dlsym(driver, "fake_cuda_calls"));
  const unsigned long calls = count == nullptr ? 0 : count(function);
  dlclose(driver);
  return calls;
}
bool counts() { return calls_of("cuInit") > 0; }

/// Copies that were made since, by streams and by read() (shared_memory.h), which waits for each of
/// its copies.
struct Copies {
  unsigned long made = 0, waited_for = 0;

  static Copies so_far() { return {calls_of("cuMemcpyAsync"), calls_of("cuStreamSynchronize")}; }
  Copies since(const Copies& before) const {
    return {made - before.made, waited_for - before.waited_for};
  }
};

RankOptions options_for(CudaRanks& devices, std::uint32_t ranks) {
  RankOptions options{.size = ranks, .transport = "shm"};
  options.devices = [&devices](std::uint32_t rank) { return devices.of_rank(rank); };
  return options;
}

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
    Words words(count);
    std::iota(words.begin(), words.end(), first);
    memory_.write(static_cast<std::byte*>(made.data), words.data(), made.bytes());
    return made;
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

class CudaDirect : public testing::TestWithParam<std::uint32_t> {};

TEST_P(CudaDirect, GathersWithOneCopyOfEachPart) {
  const std::uint32_t ranks = GetParam();
  CudaRanks devices(ranks);
  RankOptions options = options_for(devices, ranks);
  options.environment["XYLEM_ALGORITHM"] = "direct";
  options.environment["XYLEM_SLICE"] = "64K";
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    Buffers buffers(devices, world.rank());
    constexpr std::uint64_t kPart = 10 << 14;  // Ten slices.
    const Buffer input = buffers.make(kPart, 1000 * world.rank());
    const Buffer output = buffers.make(ranks * kPart);
    const Copies copies =
        count_copies(world, [&] { EXPECT_TRUE(world.all_gather(input, output).wait()); });
    EXPECT_EQ(copies.waited_for, 0);
    if (counts()) {
      EXPECT_EQ(copies.made, ranks * ranks * 10);
    }
    const Words got = buffers.read(output);
    for (std::uint64_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], 1000 * (i / kPart) + i % kPart) << i;
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST_P(CudaDirect, ReducesWhereTheInputsLie) {
  const std::uint32_t ranks = GetParam();
  CudaRanks devices(ranks);
  RankOptions options = options_for(devices, ranks);
  options.environment["XYLEM_ALGORITHM"] = "direct";
  run_ranks(options, [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    Buffers buffers(devices, world.rank());
    const Buffer input = buffers.make(ranks * kCount, world.rank());
    const Buffer output = buffers.make(kCount);
    const Copies copies = count_copies(
        world, [&] { EXPECT_TRUE(world.reduce_scatter(input, output, RedOp::sum).wait()); });
    EXPECT_EQ(copies.waited_for, 0);
    // Alone, a rank copies its input.
    if (counts() && ranks > 1) {
      EXPECT_EQ(copies.made, 0);
    }
    const Words got = buffers.read(output);
    for (std::uint64_t i = 0; i < got.size(); ++i) {
      const auto sum = ranks * (world.rank() * kCount + i) + ranks * (ranks - 1) / 2;
      ASSERT_EQ(got[i], static_cast<std::uint32_t>(sum)) << i;
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST_P(CudaDirect, MovesMessagesWithOneCopy) {
  const std::uint32_t ranks = GetParam();
  if (ranks == 1) return;  // A message to oneself goes through the host.
  CudaRanks devices(ranks);
  run_ranks(options_for(devices, ranks), [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    Buffers buffers(devices, world.rank());
    const Ring ring(buffers, world.rank(), ranks);
    const Copies copies = count_copies(world, [&] {
      const Work receive = world.recv(ring.received, ring.from);
      const Work send = world.send(ring.sent, ring.to);
      EXPECT_TRUE(receive.wait());
      EXPECT_TRUE(send.wait());
    });
    EXPECT_EQ(copies.waited_for, 0);
    if (counts()) {
      EXPECT_EQ(copies.made, ranks);
    }
    EXPECT_TRUE(ring.is_right());
    EXPECT_TRUE(world.barrier().wait());
  });
}

// The stream of each rank waits for its send, and then for its receive. So the message must leave
// the sender's memory although the receive's turn has not come.
TEST_P(CudaDirect, LetsSendsEndBeforeReceivesBehindThem) {
  const std::uint32_t ranks = GetParam();
  CudaRanks devices(ranks);
  run_ranks(options_for(devices, ranks), [&](Runtime& runtime, MemoryHub&) {
    const auto world = runtime.world();
    Buffers buffers(devices, world.rank());
    const Ring ring(buffers, world.rank(), ranks);
    const auto on_stream = world.on(buffers.stream());
    const Work send = on_stream.send(ring.sent, ring.to);
    const Work receive = on_stream.recv(ring.received, ring.from);
    EXPECT_TRUE(receive.wait());
    EXPECT_TRUE(send.wait());
    EXPECT_TRUE(ring.is_right());
    EXPECT_TRUE(world.barrier().wait());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaDirect, testing::Values(1U, 2U, 3U, 5U, 8U));

}  // namespace
}  // namespace xylem::test
