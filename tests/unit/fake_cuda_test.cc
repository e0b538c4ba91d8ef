// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for the CUDA driver: memory, and the order of commands.
#include "unit/fake_cuda_fixture.h"

#include <atomic>
#include <future>
#include <numeric>

namespace xylem::fake_cuda::test {
namespace {

using std::chrono::milliseconds;

/// Limit for programs that must end: long enough even under a sanitizer on a busy machine.
constexpr milliseconds kPatience{20000};
/// A program that has not ended after this time counts as blocked forever.
constexpr milliseconds kGlance{50};

using FakeCudaMemory = FakeCuda;

TEST_F(FakeCudaMemory, FaultsWhenTheHostTouchesDeviceMemory) {
  start();
  const CUdeviceptr address = allocate(64);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "");
  must(CU(cuMemFree)(address));
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(address) = 1, "");
}

TEST_F(FakeCudaMemory, IsNotZeroWhenItIsNew) {
  start();
  EXPECT_NE(view(allocate(64))[3], 0U);
}

TEST_F(FakeCudaMemory, HasNewBufferIdWhenAnAddressIsReused) {
  start();
  const auto id_of = [this](CUdeviceptr address) {
    unsigned long long id = 0;
    must(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    return id;
  };
  const CUdeviceptr first = allocate(10000);
  const auto id = id_of(first);
  must(CU(cuMemFree)(first));
  const CUdeviceptr second = allocate(10000);
  EXPECT_EQ(first, second);
  EXPECT_NE(id, id_of(second));
}

TEST_F(FakeCudaMemory, IsFilledLaterUnlessItsContextSynchronizes) {
  start();
  std::uint32_t* gate = allocate_host(1);
  const CUdeviceptr address = allocate(64);
  hold(nullptr, gate);
  must(CU(cuMemsetD8)(address, 7, 64));
  EXPECT_EQ(CU(cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
  open(gate);
  unsigned flags = 7;
  must(CU(cuCtxSetFlags)(CU_CTX_SYNC_MEMOPS));
  must(CU(cuCtxGetFlags)(&flags));
  EXPECT_EQ(flags, unsigned{CU_CTX_SYNC_MEMOPS});
  must(CU(cuMemsetD8)(address, 8, 64));
  EXPECT_EQ(*view(address), 0x08080808U);
}

TEST_F(FakeCudaMemory, HasNoPreferredLocationIfItIsManaged) {
  start();
  CUdeviceptr managed = 0;
  must(CU(cuMemAllocManaged)(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  const auto location_of = [this](CUdeviceptr address, int& location) {
    return CU(cuMemRangeGetAttribute)(&location, sizeof location,
                                      CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, 8);
  };
  int location = 7;
  EXPECT_EQ(location_of(managed + 56, location), CUDA_SUCCESS);
  EXPECT_EQ(location, CU_DEVICE_INVALID);
  EXPECT_EQ(location_of(managed + 57, location), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(location_of(allocate(64), location), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FakeCudaMemory, IsDescribedByPointerAttributes) {
  start();
  const CUdeviceptr address = allocate(1000);
  CUdeviceptr managed = 0;
  must(CU(cuMemAllocManaged)(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  *reinterpret_cast<int*>(managed) = 1;
  std::vector<int> pageable(4);

  struct Case {
    CUdeviceptr address;
    unsigned type;
    unsigned is_managed;
    std::size_t bytes;
  };
  const Case cases[] = {{address + 10, CU_MEMORYTYPE_DEVICE, 0, 1000},
                        {on_device(allocate_host(8)), CU_MEMORYTYPE_HOST, 0, 32},
                        {managed, CU_MEMORYTYPE_DEVICE, 1, 64},
                        {on_device(pageable.data()), 0, 0, 0}};
  for (const Case& expected : cases) {
    unsigned type = 7;
    unsigned is_managed = 7;
    std::size_t bytes = 7;
    CUcontext owner = nullptr;
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
    void* data[] = {&type, &is_managed, &bytes, static_cast<void*>(&owner)};
    must(CU(cuPointerGetAttributes)(4, attributes, data, expected.address));
    EXPECT_EQ(type, expected.type);
    EXPECT_EQ(is_managed, expected.is_managed);
    EXPECT_EQ(bytes, expected.bytes);
    EXPECT_EQ(owner, bytes == 0 ? nullptr : context());
    EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, expected.address),
              bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
  }
  CUdeviceptr base = 0;
  std::size_t size = 0;
  must(CU(cuMemGetAddressRange)(&base, &size, address + 999));
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 1000U);
  EXPECT_EQ(CU(cuMemGetAddressRange)(&base, &size, address + 1000), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaMemory, IsFreedAfterAllWork) {
  start({{"FAKE_CUDA_DELAY_US", "2000"}});
  std::atomic<bool> has_run{false};
  const CUdeviceptr address = allocate(64);
  must(CU(cuLaunchHostFunc)(
      make_stream(), [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &has_run));
  must(CU(cuMemFree)(address));
  EXPECT_TRUE(has_run);
}

TEST_F(FakeCudaMemory, OfTheHostIsReadAtTheCallOnlyIfItIsPageable) {
  start();
  std::uint32_t* gate = allocate_host(1);
  std::uint32_t* pinned = allocate_host(1);
  std::uint32_t pageable = 1;
  *pinned = 1;
  const CUdeviceptr target = allocate(8);
  const CUstream stream = make_stream();
  hold(stream, gate);
  must(CU(cuMemcpyHtoDAsync)(target, &pageable, 4, stream));
  must(CU(cuMemcpyHtoDAsync)(target + 4, pinned, 4, stream));
  pageable = *pinned = 2;
  open(gate);
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(view(target)[0], 1U);
  EXPECT_EQ(view(target)[1], 2U);
}

using FakeCudaStream = FakeCuda;

TEST_F(FakeCudaStream, RunsItsCommandsInOrder) {
  for (int seed = 1; seed <= 5; ++seed) {
    start({{"FAKE_CUDA_SEED", std::to_string(seed)}, {"FAKE_CUDA_DELAY_US", "100"}});
    const CUdeviceptr first = allocate(4096);
    const CUdeviceptr second = allocate(4096);
    const CUstream stream = make_stream();
    for (unsigned value = 1; value <= 10; ++value) {
      must(CU(cuMemsetD32Async)(first, value, 1024, stream));
      must(CU(cuMemcpyDtoDAsync)(second, first, 4096, stream));
      must(CU(cuMemsetD8Async)(first, 0, 4096, stream));
      std::vector<std::uint32_t> out(1024);
      must(CU(cuMemcpyDtoHAsync)(out.data(), second, 4096, stream));
      EXPECT_EQ(out, std::vector<std::uint32_t>(1024, value));
    }
  }
}

/// Copies from one stream to the next, and returns the result.
class FakeCudaEvent : public FakeCuda {
 protected:
  std::uint32_t pass_on(int seed, bool has_event) {
    start({{"FAKE_CUDA_SEED", std::to_string(seed)}, {"FAKE_CUDA_DELAY_US", "300"}});
    const CUdeviceptr memory = allocate(12);
    view(memory)[0] = 7;
    view(memory)[1] = view(memory)[2] = 0;
    const CUfunction copy = kernel("test_copy");
    const CUstream producer = make_stream();
    const CUstream consumer = make_stream();
    const CUevent event = make_event();
    must(launch(copy, memory + 4, memory, 1, producer));
    if (has_event) {
      must(CU(cuEventRecord)(event, producer));
      must(CU(cuStreamWaitEvent)(consumer, event, 0));
    }
    must(launch(copy, memory + 8, memory + 4, 1, consumer));
    must(CU(cuCtxSynchronize)());
    EXPECT_EQ(misuses(), 0U) << last_misuse();
    return view(memory)[2];
  }
};

TEST_F(FakeCudaEvent, OrdersTwoStreamsForEverySeed) {
  for (int seed = 1; seed <= 40; ++seed) EXPECT_EQ(pass_on(seed, true), 7U) << "seed " << seed;
}

TEST_F(FakeCudaEvent, IsMissedBySomeSeedWhenItIsDropped) {
  int stale = 0;
  for (int seed = 1; seed <= 200 && stale == 0; ++seed) stale += pass_on(seed, false) == 0 ? 1 : 0;
  EXPECT_GT(stale, 0);
}

TEST_F(FakeCudaEvent, MeansTheRecordBeforeTheWait) {
  start();
  std::uint32_t* gate = allocate_host(1);
  const CUstream blocked = make_stream();
  const CUstream other = make_stream();
  const CUevent event = make_event();
  must(CU(cuEventQuery)(event));
  must(CU(cuStreamWaitEvent)(other, event, 0));
  must(CU(cuEventRecord)(event, blocked));
  must(CU(cuStreamWaitEvent)(other, event, 0));
  // The second record cannot complete yet. The wait is for the first record.
  hold(blocked, gate);
  must(CU(cuEventRecord)(event, blocked));
  must(CU(cuStreamSynchronize)(other));
  EXPECT_EQ(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
  open(gate);
  must(CU(cuEventSynchronize)(event));
}

/// A program that needs two streams to run at once: the first waits for a value that the second
/// writes.
class FakeCudaQueue : public FakeCuda {
 protected:
  /// Returns true if the program ends by itself. Otherwise the CPU writes the value.
  bool ends(unsigned queues, bool waits_first, int priority = 0) {
    start({{"FAKE_CUDA_QUEUES", std::to_string(queues)}});
    std::uint32_t* value = allocate_host(1);
    CUstream waiter = make_stream();
    CUstream writer = nullptr;
    must(CU(cuStreamCreateWithPriority)(&writer, CU_STREAM_NON_BLOCKING, priority));
    const auto wait = [&] { hold(waiter, value); };
    if (waits_first) wait();
    must(CU(cuStreamWriteValue32)(writer, on_device(value), 1, 0));
    if (!waits_first) wait();
    const bool is_stuck = queues == 1 && waits_first;
    const bool has_ended = query_for(waiter, is_stuck ? kGlance : kPatience) == CUDA_SUCCESS;
    open(value);
    must(CU(cuStreamSynchronize)(waiter));
    return has_ended;
  }
};

TEST_F(FakeCudaQueue, IsBlockedByAWaitAtItsHead) {
  EXPECT_FALSE(ends(1, true));
  EXPECT_TRUE(ends(1, false));
  EXPECT_TRUE(ends(2, true));
}

TEST_F(FakeCudaQueue, IsSharedByStreamsOfAllPriorities) { EXPECT_FALSE(ends(1, true, -5)); }

TEST_F(FakeCudaQueue, IsChosenForEachPieceOfWork) {
  start({{"FAKE_CUDA_QUEUES", "2"}});
  std::uint32_t* gates = allocate_host(2);
  const CUstream streams[] = {make_stream(), make_stream(), make_stream()};
  const CUdeviceptr memory = allocate(4);
  const auto wait = [&](int i) {
    must(CU(cuStreamWaitValue32)(streams[i], on_device(gates + i), 1, CU_STREAM_WAIT_VALUE_EQ));
  };
  const auto go_on = [&](int i) { open(gates + i); };
  wait(0);
  for (int round = 0; round < 3; ++round) {
    for (const CUstream stream : {streams[2], streams[1]}) {
      must(CU(cuMemsetD8Async)(memory, 0, 4, stream));
      must(CU(cuStreamSynchronize)(stream));
    }
  }
  // If a stream waits in each queue, the third stream cannot run.
  wait(1);
  must(CU(cuMemsetD8Async)(memory, 0, 4, streams[2]));
  EXPECT_EQ(query_for(streams[2], kGlance), CUDA_ERROR_NOT_READY);
  go_on(1);
  must(CU(cuStreamSynchronize)(streams[1]));
  EXPECT_EQ(query_for(streams[0], milliseconds(0)), CUDA_ERROR_NOT_READY);
  go_on(0);
  must(CU(cuStreamSynchronize)(streams[2]));
}

TEST_F(FakeCudaStream, ThatWaitsHoldsUpFreesAndAllOtherThreadsOfTheContext) {
  start();
  std::uint32_t* gate = allocate_host(1);
  const CUdeviceptr memory = allocate(4);
  const CUstream waiting = make_stream();
  hold(waiting, gate);
  const auto on_thread = [this](auto call) {
    return std::async(std::launch::async, [this, call] {
      must(CU(cuCtxPushCurrent)(context()));
      return call();
    });
  };
  std::future<CUresult> freed = on_thread([this, memory] { return CU(cuMemFree)(memory); });
  EXPECT_EQ(freed.wait_for(kGlance), std::future_status::timeout);
  std::future<CUresult> other = on_thread([this, waiting] { return CU(cuStreamQuery)(waiting); });
  EXPECT_EQ(other.wait_for(kGlance), std::future_status::timeout);
  open(gate);
  EXPECT_EQ(freed.get(), CUDA_SUCCESS);
  EXPECT_EQ(other.get(), CUDA_SUCCESS);
}

TEST_F(FakeCudaStream, OfTheDefaultKindWaitsForBlockingStreamsOnly) {
  start();
  std::uint32_t* gate = allocate_host(2);
  const CUdeviceptr memory = allocate(4);
  // There are more queues than streams, so only the rules for the NULL stream can block a stream.
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  const CUstream free = make_stream();
  hold(free, gate);
  must(CU(cuMemsetD8)(memory, 1, 4));
  must(CU(cuStreamSynchronize)(nullptr));

  hold(blocking, gate + 1);
  must(CU(cuMemsetD8)(memory, 1, 4));
  EXPECT_EQ(query_for(nullptr, kGlance), CUDA_ERROR_NOT_READY);
  must(CU(cuMemsetD8Async)(memory, 2, 4, CU_STREAM_PER_THREAD));
  EXPECT_EQ(query_for(CU_STREAM_PER_THREAD, kGlance), CUDA_ERROR_NOT_READY);
  open(gate + 1);
  must(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
  EXPECT_EQ(view(memory)[0], 0x02020202U);
  EXPECT_EQ(CU(cuStreamQuery)(free), CUDA_ERROR_NOT_READY);
  open(gate);
  must(CU(cuCtxSynchronize)());
}

TEST_F(FakeCudaStream, WaitsForValuesInFourWays) {
  start();
  auto* word = reinterpret_cast<std::uint64_t*>(allocate_host(2));
  const std::atomic_ref<std::uint64_t> value(*word);
  const CUstream stream = make_stream();
  struct Case {
    unsigned flags;
    std::uint64_t wanted, before, after;
  };
  const Case cases[] = {
      {CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
      {CU_STREAM_WAIT_VALUE_GEQ, 2, ~std::uint64_t{0}, 2},  // Cyclic: the maximum is before 2.
      {CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
      {CU_STREAM_WAIT_VALUE_AND, 4, 3, 5},
      {CU_STREAM_WAIT_VALUE_NOR, 1, ~std::uint64_t{1}, 2}};
  for (const Case& check : cases) {
    value.store(check.before);
    must(CU(cuStreamWaitValue64)(stream, on_device(word), check.wanted, check.flags));
    EXPECT_EQ(query_for(stream, milliseconds(5)), CUDA_ERROR_NOT_READY) << check.flags;
    value.store(check.after);
    EXPECT_EQ(query_for(stream, kPatience), CUDA_SUCCESS) << check.flags;
  }
  EXPECT_EQ(misuses(), 0U) << last_misuse();
}

TEST_F(FakeCudaStream, RunsABatchOfMemoryOperationsInOrder) {
  start();
  std::uint32_t* words = allocate_host(4);
  const CUstream stream = make_stream();
  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, on_device(words), {1}, 0, 0};
  batch[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, on_device(words + 1), {1}, 0, 0};
  batch[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, on_device(words + 2), {}, 0, 0};
  batch[2].writeValue.value64 = 3;
  must(CU(cuStreamBatchMemOp)(stream, 3, batch, 0));
  const std::atomic_ref<std::uint32_t> ready(words[0]);
  while (ready.load() == 0) {
  }
  EXPECT_EQ(std::atomic_ref<std::uint32_t>(words[2]).load(), 0U);
  open(words + 1);
  must(CU(cuStreamSynchronize)(stream));
  EXPECT_EQ(words[2], 3U);
}

using FakeCudaKernel = FakeCuda;

TEST_F(FakeCudaKernel, VisitsEveryElementOnceWithTheParametersOfTheLaunch) {
  start();
  constexpr std::size_t kCount = 1000;
  const CUdeviceptr target = allocate(4 * kCount);
  std::uint32_t* source = allocate_host(kCount);
  std::iota(source, source + kCount, 0);
  const CUstream stream = make_stream();
  must(CU(cuMemsetD32Async)(target, 5, kCount, stream));
  // The parameters are on the stack of launch(), which has returned when the kernel runs.
  must(launch(kernel("test_add"), target, on_device(source), kCount, stream));
  must(CU(cuStreamSynchronize)(stream));
  for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(view(target)[i], i + 5);
  int blocks = 0;
  must(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel("test_add"), 256, 0));
  EXPECT_EQ(blocks, 8);
}

TEST_F(FakeCudaKernel, LosesTheDeviceWhenItReachesUnknownMemory) {
  start();
  std::vector<std::uint32_t> pageable(100);
  const CUdeviceptr memory = allocate(400);
  const CUstream stream = make_stream();
  must(launch(kernel("test_add"), memory, on_device(pageable.data()), 100, stream));
  EXPECT_EQ(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr other = 0;
  EXPECT_EQ(CU(cuMemAlloc)(&other, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace xylem::fake_cuda::test
