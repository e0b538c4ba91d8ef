// SPDX-License-Identifier: Apache-2.0
//
// Buffers whose kind of memory the caller does not state: device, managed, pinned and pageable
// memory, mixed among ranks; a driver that is loaded late; addresses that are freed and reused.
#include "support/cuda_ranks.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "xylem/execution/cuda_pointers.h"
#include "xylem/runtime/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace xylem::test {
namespace {

using execution::CudaPointers;
using execution::cuda::CurrentContext;
using execution::cuda::Driver;

constexpr std::uint64_t kCount = 3000;
constexpr std::uint64_t kBytes = kCount * sizeof(std::uint32_t);

using Words = std::vector<std::uint32_t>;

RankOptions options_for(std::uint32_t ranks) {
  return {.size = ranks, .transport = "shm", .environment = {{"XYLEM_SLICE", "4K"}}};
}

Words words_of(std::uint32_t rank) {
  Words words(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) words[i] = 7 * i + rank;
  return words;
}

Words sum_of(std::uint32_t ranks) {
  Words sum(kCount, 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Words words = words_of(rank);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += words[i];
  }
  return sum;
}

Buffer unstated(void* words) { return {words, kCount, DataType::uint32}; }

/// Memory that the host may access. It is pinned, managed or pageable.
class HostWords {
 public:
  enum class Kind { pinned, managed, pageable };

  HostWords(const Driver& driver, CUcontext context, Kind kind) : driver_(driver), kind_(kind) {
    const CurrentContext current(driver_, context);
    void* memory = nullptr;
    if (kind == Kind::pinned) {
      EXPECT_EQ(driver_.cuMemHostAlloc(&memory, kBytes, 0), CUDA_SUCCESS);
    } else if (kind == Kind::managed) {
      CUdeviceptr address = 0;
      EXPECT_EQ(driver_.cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
      memory = reinterpret_cast<void*>(address);
    } else {
      pageable_.resize(kCount);
      memory = pageable_.data();
    }
    context_ = context;
    words_ = {static_cast<std::uint32_t*>(memory), kCount};
  }
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;
  ~HostWords() {
    const CurrentContext current(driver_, context_);
    const auto& driver = driver_.blocking(execution::cuda::MayWait{});
    if (kind_ == Kind::pinned) driver.cuMemFreeHost(words_.data());
    if (kind_ == Kind::managed) driver.cuMemFree(reinterpret_cast<CUdeviceptr>(words_.data()));
  }

  void set(const Words& words) const { std::ranges::copy(words, words_.begin()); }
  Words get() const { return {words_.begin(), words_.end()}; }
  std::uint32_t* data() const { return words_.data(); }

 private:
  const Driver& driver_;
  const Kind kind_;
  CUcontext context_ = nullptr;
  Words pageable_;
  std::span<std::uint32_t> words_;
};

/// Returns the sum over all ranks. It is reduced in place in device memory, whose kind the call
/// must find out.
Words reduced_on_device(const Communicator& world, CudaMemory& memory) {
  std::byte* const there = memory.allocate(kBytes);
  memory.write(there, words_of(world.rank()).data(), kBytes);
  const Buffer buffer = unstated(there);
  const Status status = world.all_reduce(buffer, buffer, RedOp::sum).wait();
  EXPECT_TRUE(status) << status.to_string();
  Words result(kCount);
  memory.read(result.data(), there, kBytes);
  memory.clear();
  return result;
}

Words reduced_on_host(const Communicator& world, std::uint32_t* words) {
  std::ranges::copy(words_of(world.rank()), words);
  const Buffer buffer = unstated(words);
  const Status status = world.all_reduce(buffer, buffer, RedOp::sum).wait();
  EXPECT_TRUE(status) << status.to_string();
  return {words, words + kCount};
}

// The driver is loaded after the job has cached plans for calls of the same shape. This must be the
// first test of the process, since the driver stays loaded.
TEST(CudaMemory, IsFoundIfTheDriverIsLoadedLate) {
  ASSERT_EQ(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
  CudaPointers pointers;
  EXPECT_FALSE(pointers.is_driver_loaded());
  // Loading a library that is not the driver.
  ASSERT_EQ(::dlopen("libBrokenLocale.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
  void* const other = ::dlopen("libBrokenLocale.so.1", RTLD_LAZY);
  ASSERT_NE(other, nullptr) << ::dlerror();
  EXPECT_FALSE(pointers.is_driver_loaded());
  ::dlclose(other);
  EXPECT_FALSE(pointers.is_driver_loaded());
  int local = 0;
  EXPECT_EQ(pointers.find(&local).memory, Memory{});

  constexpr std::uint32_t kRanks = 2;
  std::optional<CudaRanks> devices;
  std::latch made(kRanks);
  run_ranks(options_for(kRanks), [&](const Communicator& world) {
    Words words(kCount);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(reduced_on_host(world, words.data()), sum_of(kRanks));
    if (world.rank() == 0) devices.emplace(kRanks);
    made.arrive_and_wait();
    EXPECT_EQ(reduced_on_device(world, devices->memory(world.rank())), sum_of(kRanks));
    EXPECT_EQ(reduced_on_host(world, words.data()), sum_of(kRanks));
    EXPECT_TRUE(world.barrier().wait());
  });
  EXPECT_TRUE(pointers.is_driver_loaded());
}

TEST(CudaMemory, IsToldFromItsAddress) {
  CudaRanks devices(2);
  CudaPointers pointers;
  ASSERT_TRUE(pointers.is_driver_loaded());
  for (const std::uint32_t rank : {0U, 1U}) {
    CudaMemory& memory = devices.memory(rank);
    const auto found = pointers.find(memory.allocate(kBytes) + 100);
    EXPECT_EQ(found.memory, devices.kind(rank));
    EXPECT_FALSE(found.is_pinned);
    const HostWords pinned(devices.driver(), memory.context(), HostWords::Kind::pinned);
    EXPECT_EQ(pointers.find(pinned.data() + 1).memory, Memory{});
    EXPECT_TRUE(pointers.find(pinned.data() + 1).is_pinned);
    const HostWords managed(devices.driver(), memory.context(), HostWords::Kind::managed);
    EXPECT_EQ(pointers.find(managed.data() + 1).memory, devices.kind(rank));
  }
  int local = 0;
  EXPECT_EQ(pointers.find(&local).memory, Memory{});
  EXPECT_FALSE(pointers.find(&local).is_pinned);
  EXPECT_EQ(pointers.find(nullptr).memory, Memory{});
}

// Ranks with device, pinned, managed and pageable memory make the same calls.
TEST(CudaMemory, MixesAmongRanks) {
  constexpr std::uint32_t kRanks = 4;
  CudaRanks devices(kRanks);
  run_ranks(options_for(kRanks), [&](const Communicator& world) {
    const std::uint32_t rank = world.rank();
    CudaMemory& memory = devices.memory(rank);
    for (std::uint32_t round = 0; round < 2 * kRanks; ++round) {
      const std::uint32_t kind = (rank + round) % 4;
      if (kind == 3) {
        ASSERT_EQ(reduced_on_device(world, memory), sum_of(kRanks)) << "round " << round;
      } else {
        const HostWords words(devices.driver(), memory.context(),
                              static_cast<HostWords::Kind>(kind));
        ASSERT_EQ(reduced_on_host(world, words.data()), sum_of(kRanks)) << "round " << round;
      }
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaMemory, MixesAmongTheEndsOfAMessage) {
  constexpr std::uint32_t kRanks = 2;
  CudaRanks devices(kRanks);
  run_ranks(options_for(kRanks), [&](const Communicator& world) {
    const std::uint32_t rank = world.rank();
    CudaMemory& memory = devices.memory(rank);
    for (const auto kind :
         {HostWords::Kind::pinned, HostWords::Kind::managed, HostWords::Kind::pageable}) {
      const HostWords here(devices.driver(), memory.context(), kind);
      std::byte* const there = memory.allocate(kBytes);
      if (rank == 0) {
        memory.write(there, words_of(5).data(), kBytes);
        EXPECT_TRUE(world.send(unstated(there), 1).wait());
        EXPECT_TRUE(world.recv(unstated(here.data()), 1).wait());
        EXPECT_EQ(here.get(), words_of(6));
      } else {
        EXPECT_TRUE(world.recv(unstated(here.data()), 0).wait());
        EXPECT_EQ(here.get(), words_of(5));
        here.set(words_of(6));
        EXPECT_TRUE(world.send(unstated(here.data()), 0).wait());
      }
      memory.clear();
    }
    EXPECT_TRUE(world.barrier().wait());
  });
}

TEST(CudaMemory, IsFoundWhereAnAddressIsUsedAgain) {
  CudaRanks devices(2);
  run_ranks(options_for(1), [&](const Communicator& world) {
    const Driver& driver = devices.driver();
    // Memory at one address: on one device, then on another.
    std::set<void*> addresses;
    for (const std::uint32_t device : {0U, 1U, 0U}) {
      CudaMemory memory(devices.shared_driver(), devices.kind(device).device, kBytes + 256);
      addresses.insert(memory.allocate(1));
      memory.clear();
      EXPECT_EQ(reduced_on_device(world, memory), sum_of(1));
    }
    EXPECT_TRUE(addresses.size() == 1 || !is_stand_in());
    // Memory at one address: managed, then host memory.
    int used_again = 0;
    for (int round = 0; round < 10; ++round) {
      void* address = nullptr;
      {
        const HostWords managed(driver, devices.memory(0).context(), HostWords::Kind::managed);
        EXPECT_EQ(reduced_on_host(world, managed.data()), sum_of(1));
        address = managed.data();
      }
      void* const again = ::mmap(address, kBytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (again == MAP_FAILED) continue;  // A driver may keep the addresses of freed memory.
      ++used_again;
      EXPECT_EQ(reduced_on_host(world, static_cast<std::uint32_t*>(again)), sum_of(1));
      ::munmap(again, kBytes);
    }
    EXPECT_TRUE(used_again > 0 || !is_stand_in());
  });
}

TEST(CudaMemory, IsAllocatedOnADeviceAndFreedOnce) {
  CudaRanks devices(2);
  CudaPointers pointers;
  const Memory where = devices.kind(1);
  auto first = value_of(allocate(kBytes, where));
  EXPECT_EQ(first.memory(), where);
  EXPECT_EQ(pointers.find(first.data()).memory, where);
  EXPECT_EQ(deallocate(static_cast<std::byte*>(first.data()) + 1).code(), Code::invalid_argument);
  EXPECT_EQ(deallocate(devices.memory(1).allocate(1)).code(), Code::invalid_argument)
      << "memory of the program";
  run_ranks(options_for(1), [&](Runtime& runtime, MemoryHub&) {
    const CudaMemory& memory = devices.memory(1);
    memory.write(static_cast<std::byte*>(first.data()), words_of(0).data(), kBytes);
    const Buffer buffer(first.data(), kCount, DataType::uint32, first.memory());
    const auto world = runtime.world().on({memory.stream(), where});
    EXPECT_TRUE(world.all_reduce(buffer, buffer, RedOp::sum).wait());
    Words words(kCount);
    memory.read(words.data(), static_cast<std::byte*>(first.data()), kBytes);
    EXPECT_EQ(words, words_of(0));
  });
  void* const data = first.release();
  EXPECT_EQ(pointers.find(data).memory, where);
  EXPECT_TRUE(deallocate(data));
  EXPECT_EQ(pointers.find(data).memory, Memory{});
  EXPECT_EQ(deallocate(data).code(), Code::invalid_argument);
  { const auto second = allocate(kBytes, where); }
  EXPECT_EQ(allocate(0, where).code(), Code::invalid_argument);
  EXPECT_THAT(allocate(kBytes, {MemoryKind::cuda, 99}),
              fails_as(Code::unsupported, "there is no CUDA device 99"));
  const auto most = allocate(std::uint64_t{1} << 50, where);
  EXPECT_EQ(most.code(), Code::exhausted) << most.status().to_string();
}

TEST(CudaMemory, LeavesOtherDevicesAlone) {
  CudaRanks devices(1);  // Calls use device 0 only.
  const Driver& driver = devices.driver();
  int count = 0;
  ASSERT_EQ(driver.cuDeviceGetCount(&count), CUDA_SUCCESS);
  run_ranks(options_for(1), [&](const Communicator& world) {
    EXPECT_EQ(reduced_on_device(world, devices.memory(0)), sum_of(1));
    Words words(kCount);
    EXPECT_EQ(reduced_on_host(world, words.data()), sum_of(1));
  });
  for (int device = 1; device < count; ++device) {
    unsigned flags = 0;
    int is_active = 1;
    ASSERT_EQ(driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active), CUDA_SUCCESS);
    EXPECT_EQ(is_active, 0) << "device " << device;
  }
}

TEST(CudaMemory, OfTwoKindsInOneCallIsAnError) {
  CudaRanks devices(1);
  run_ranks(options_for(1), [&](const Communicator& world) {
    Words words(kCount);
    const Buffer there = unstated(devices.memory(0).allocate(kBytes));
    EXPECT_THAT(world.all_reduce(unstated(words.data()), there, RedOp::sum).wait(),
                fails_as(Code::invalid_argument,
                         "the input is in host memory, the output in cuda memory of "
                         "device 0; copy one of them"));
    // A null buffer without elements may be combined with memory of any kind.
    const Buffer nothing(nullptr, 0, DataType::uint32);
    const std::uint64_t counts[] = {0};
    EXPECT_TRUE(
        world.all_gather_v(nothing, Buffer(there.data, 0, DataType::uint32), counts).wait());
  });
}

TEST(CudaMemory, ThatIsStatedWronglyIsAnError) {
  CudaRanks devices(2);
  run_ranks(options_for(1), [&](const Communicator& world) {
    Words words(kCount);
    std::vector<void*> wrong{words.data()};
    if (devices.devices() > 1) wrong.push_back(devices.memory(1).allocate(kBytes));
    for (void* const address : wrong) {
      const Buffer buffer(address, kCount, DataType::uint32, devices.kind(0));
      EXPECT_THAT(world.all_reduce(buffer, buffer, RedOp::sum).wait(),
                  fails_as(Code::invalid_argument, "it is said to be in cuda memory of"));
    }
  });
}

TEST(CudaMemory, OfTheHostIsOrderedByAStreamIfItIsPinned) {
  constexpr std::uint32_t kRanks = 3;
  CudaRanks devices(kRanks);
  run_ranks(options_for(kRanks), [&](Runtime& runtime, MemoryHub&) {
    const std::uint32_t rank = runtime.rank();
    CudaMemory& memory = devices.memory(rank);
    const Driver& driver = devices.driver();
    const auto world = runtime.world().on({memory.stream(), devices.kind(rank)});
    const HostWords words(driver, memory.context(), HostWords::Kind::pinned);
    // The copies are between host and device. For a copy from host to host, the driver would block
    // the calling thread until the call has ended; on a GPU it would also block the threads that
    // run the call.
    std::byte* const source = memory.allocate(kBytes);
    std::byte* const target = memory.allocate(kBytes);
    memory.write(source, words_of(rank).data(), kBytes);
    const auto copy = [&](const void* to, const void* from) {
      const CurrentContext current(driver, memory.context());
      EXPECT_EQ(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to),
                                     reinterpret_cast<CUdeviceptr>(from), kBytes, memory.stream()),
                CUDA_SUCCESS);
    };
    for (int round = 0; round < 20; ++round) {
      copy(words.data(), source);
      const Work work =
          world.all_reduce(unstated(words.data()), unstated(words.data()), RedOp::sum);
      copy(target, words.data());
      copy(words.data(), target);  // A next call that begins too early has a wrong result.
      {
        const CurrentContext current(driver, memory.context());
        ASSERT_EQ(driver.cuStreamSynchronize(memory.stream()), CUDA_SUCCESS);
      }
      Words got(kCount);
      memory.read(got.data(), target, kBytes);
      ASSERT_EQ(got, sum_of(kRanks)) << "round " << round;
      ASSERT_TRUE(work.wait());
    }
    EXPECT_TRUE(runtime.world().barrier().wait());

    Words pageable(kCount);
    const Buffer refused = unstated(pageable.data());
    EXPECT_THAT(world.all_reduce(refused, refused, RedOp::sum).wait(),
                fails_as(Code::invalid_argument, "or in pinned memory"));
  });
}

}  // namespace
}  // namespace xylem::test
