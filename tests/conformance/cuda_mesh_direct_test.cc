// SPDX-License-Identifier: Apache-2.0
//
// Calls on meshes of ranks that access each other's buffers: the commands that are enqueued on the
// streams, and the rules that prevent these calls from accessing wrong buffers. CUDA_DRIVER names
// the driver.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/stream_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <functional>
#include <vector>

namespace xylem::test {
namespace {

constexpr std::uint32_t kRanks = 3;

using Words = std::vector<std::uint32_t>;

Buffer words_in(CudaMemory& memory, const Memory& kind, const Words& words) {
  std::byte* const there = memory.allocate(words.size() * sizeof(std::uint32_t));
  memory.write(there, words.data(), words.size() * sizeof(std::uint32_t));
  return {there, words.size(), DataType::uint32, kind};
}

Words read(const CudaMemory& memory, const Buffer& buffer) {
  Words words(buffer.count);
  memory.read(words.data(), static_cast<const std::byte*>(buffer.data),
              words.size() * sizeof(std::uint32_t));
  return words;
}

/// Managed memory. Other devices may be unable to access it.
class Managed {
 public:
  Managed(const Driver& driver, CUcontext context, const Memory& kind)
      : driver_(driver), context_(context), kind_(kind) {
    const CurrentContext current(driver_, context_);
    EXPECT_EQ(driver_.cuMemAllocManaged(&address_, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  ~Managed() {
    const CurrentContext current(driver_, context_);
    driver_.blocking(execution::cuda::MayWait{}).cuMemFree(address_);
  }

  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(address_); }
  Buffer buffer() const { return {words(), kCount, DataType::uint32, kind_}; }

 private:
  const Driver& driver_;
  const CUcontext context_;
  const Memory kind_;
  CUdeviceptr address_ = 0;
};

class CudaMeshDirect : public testing::Test {
 protected:
  /// Runs `body` on each rank. The communicator's devices are bound, and its calls are in the order
  /// of the rank's stream.
  void run(const std::function<void(const Communicator&, CudaMemory&)>& body) {
    run_ranks(devices.options(), [&](const Communicator& world) {
      EXPECT_EQ(value_of(world.bind(devices.kind(world.rank()))), Binding::mesh);
      body(world.on(stream_of(devices, world.rank())), devices.memory(world.rank()));
      all_meet.arrive_and_wait();
    });
  }

  CudaRanks devices{kRanks};
  std::barrier<> all_meet{kRanks};
};

/// The commands that the stand-in has got for streams so far.
struct Commands {
  unsigned long launches = calls_of_stand_in("cuLaunchKernel");
  unsigned long batches = calls_of_stand_in("cuStreamBatchMemOp_v2");
  unsigned long writes = calls_of_stand_in("cuStreamWriteValue64_v2");
  unsigned long records = calls_of_stand_in("cuEventRecord");
  unsigned long waits = calls_of_stand_in("cuStreamWaitEvent");
};

// A call of a rank with a device of its own is a kernel and an event. If all ranks share a device,
// a call is three commands and an event: memory operations that signal the peers and wait for them,
// the kernel, and memory operations that wait for the peers. Memory operations cannot write the
// memory of other devices, so if only some ranks share a device, a kernel signals.
TEST_F(CudaMeshDirect, TakesFewCommandsAndAnEvent) {
  if (!is_stand_in()) GTEST_SKIP() << "a GPU's driver does not count calls";
  run([&](const Communicator& world, CudaMemory& memory) {
    const Buffer buffer = words_in(memory, devices.kind(world.rank()), Words(kCount, 5));
    auto* const words = static_cast<std::uint32_t*>(buffer.data);
    const Buffer part(words + 10 * world.rank(), 10, DataType::uint32, buffer.memory);
    const Buffer all(words, 10 * kRanks, DataType::uint32, buffer.memory);
    EXPECT_TRUE(world.all_reduce(buffer, buffer).wait());
    all_meet.arrive_and_wait();
    const Commands before;
    all_meet.arrive_and_wait();
    EXPECT_TRUE(world.all_reduce(buffer, buffer).wait());
    EXPECT_TRUE(world.all_gather(part, all).wait());
    all_meet.arrive_and_wait();
    const Commands after;
    unsigned launches = 0, batches = 0;  // Of one call of all ranks.
    const auto count = static_cast<std::uint32_t>(devices.devices());
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const bool shares = !CudaRanks::fuses_calls() && (rank >= count || rank + count < kRanks);
      launches += shares && count > 1 ? 2 : 1;
      batches += shares ? 2 : 0;
    }
    EXPECT_EQ(after.launches - before.launches, 2 * launches);
    EXPECT_EQ(after.batches - before.batches, 2 * batches);
    EXPECT_EQ(after.records - before.records, 2 * kRanks);
    EXPECT_EQ(after.waits - before.waits, 0);
    EXPECT_EQ(after.writes - before.writes, 0);
  });
}

TEST_F(CudaMeshDirect, TouchesNoBuffersOfCallsThatDiffer) {
  run([&](const Communicator& world, CudaMemory& memory) {
    const std::uint32_t rank = world.rank();
    const Buffer input = words_in(memory, devices.kind(rank), Words(kCount, 1));
    const Buffer output = words_in(memory, devices.kind(rank), Words(kCount, 77));
    // Rank 0 passes 16 elements, and the others kCount. Their calls would access memory beyond the
    // end of rank 0's buffers.
    const auto part = [rank](Buffer buffer) {
      buffer.count = rank == 0 ? 16 : kCount;
      return buffer;
    };
    const Status outcome = world.all_reduce(part(input), part(output)).wait();
    EXPECT_EQ(outcome.code(), Code::mismatch) << outcome.to_string();
    EXPECT_TRUE(outcome.holds_buffers());
    all_meet.arrive_and_wait();
    EXPECT_EQ(read(memory, output), Words(kCount, 77));
    EXPECT_EQ(read(memory, input), Words(kCount, 1));
  });
}

TEST_F(CudaMeshDirect, TouchesNoBuffersOfEarlierCalls) {
  run([&](const Communicator& world, CudaMemory& memory) {
    const std::uint32_t rank = world.rank();
    const Buffer buffer = words_in(memory, devices.kind(rank), Words(kCount, 1));
    const Buffer other = words_in(memory, devices.kind(rank), Words(3 * kRanks, 2));
    ASSERT_TRUE(world.all_reduce(buffer, buffer).wait());
    const Words later(kCount, 77);
    memory.write(static_cast<std::byte*>(buffer.data), later.data(), kBytes);
    all_meet.arrive_and_wait();
    // Rank 0 repeats its call. The other ranks make a call that does not access buffers of peers.
    const Work work = rank == 0 ? world.all_reduce(buffer, buffer) : world.all_to_all(other, other);
    EXPECT_EQ(work.wait().code(), Code::mismatch);
    all_meet.arrive_and_wait();
    EXPECT_EQ(read(memory, buffer), later);
  });
}

TEST_F(CudaMeshDirect, CopiesBuffersThatPeersDoNotReach) {
  if (devices.devices() == 1) GTEST_SKIP() << "all ranks have one device, which reaches its memory";
  run([&](const Communicator& world, CudaMemory& memory) {
    const std::uint32_t rank = world.rank();
    const Managed input(devices.driver(), memory.context(), devices.kind(rank));
    const Managed output(devices.driver(), memory.context(), devices.kind(rank));
    for (std::uint32_t number = 0; number < 3; ++number) {
      // Rank 1 calls in place. The buffers of rank 2 are in device memory, not managed memory.
      const Words given(kCount, number + rank), expected(kCount, 3 * number + 3);
      const Buffer in = rank == 2 ? words_in(memory, devices.kind(rank), given) : input.buffer();
      if (rank != 2) std::ranges::copy(given, input.words());
      const Buffer out = rank == 0 ? output.buffer() : in;
      ASSERT_TRUE(world.all_reduce(in, out).wait());
      if (rank == 2) {
        EXPECT_EQ(read(memory, out), expected);
      } else {
        const auto* const words = static_cast<const std::uint32_t*>(out.data);
        EXPECT_EQ(Words(words, words + kCount), expected);
      }
      memory.clear();
    }
  });
}

}  // namespace
}  // namespace xylem::test
