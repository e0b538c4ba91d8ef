// SPDX-License-Identifier: Apache-2.0
//
// The table of driver functions and the CUDA device, tested alone over the stand-in for the driver:
// drivers that are missing, old or broken, and devices that fail.
#include "cuda/cuda_compute.h"

#include "support/outcome.h"
#include "tests/fakes/cuda_driver/fake_cuda.h"
#include "xylem/transport/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace xylem::execution::cuda {
namespace {

using testing::HasSubstr;

// Calls of the driver that may wait for streams need a proof object (MayWait). Without it they do
// not compile.
template <class Any>
concept CanFree = requires(const Any& driver) {
  driver.cuMemFree(0);
};
static_assert(CanFree<BlockingDriver> && !CanFree<Driver>);
static_assert(!std::is_default_constructible_v<NoStreamWaits>);

/// Starts a new driver with these settings (fake_cuda.h).
class CudaComputeTest : public testing::Test {
 protected:
  using Settings = std::vector<std::pair<const char*, const char*>>;

  void TearDown() override {
    for (const char* name : set_) ::unsetenv(name);
  }
  void begin(const Settings& settings) {
    for (const auto& [name, value] : settings) {
      ::setenv(name, value, 1);
      set_.push_back(name);
    }
    void* const library = ::dlopen(XYLEM_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    reinterpret_cast<decltype(&fake_cuda_reset)>(::dlsym(library, "fake_cuda_reset"))();
  }
  static Result<std::shared_ptr<const Driver>> open() { return Driver::open(XYLEM_FAKE_CUDA); }
  static Result<std::shared_ptr<CudaCompute>> make() {
    XYLEM_TRY(auto driver, open());
    CudaOptions options;
    options.queues = 2;
    options.kernel_names = {"", "xylem_reduce_sum_float32"};
    return CudaCompute::make(std::move(driver), options);
  }
  /// Enqueues a copy of `source`, which is in the device's scratch, to `target`.
  static Ticket copy(CudaCompute& compute, std::byte* target, const std::byte* source) {
    const std::array<const void*, 1> sources = {source};
    std::array<const void*, 1> given = sources;
    ComputeWork work;
    work.bytes = kBytes;
    work.target = target;
    work.sources = given;
    return compute.enqueue(0, work, {});
  }
  static void wait(CudaCompute& compute, Ticket ticket) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!compute.has_completed(ticket)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::yield();
    }
  }
  static constexpr std::uint64_t kBytes = 4096;

 private:
  std::vector<const char*> set_;
};

TEST_F(CudaComputeTest, ADriverThatIsMissingIsUnsupported) {
  const auto driver = Driver::open("libno_such_driver.so.1");
  EXPECT_EQ(driver.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno_such_driver.so.1"));
}

TEST_F(CudaComputeTest, ADriverThatIsTooOldIsToldWithItsVersion) {
  begin({{"FAKE_CUDA_VERSION", "11080"}});
  const auto driver = open();
  EXPECT_EQ(driver.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("CUDA 11.8; Xylem needs 12.0"));
}

TEST_F(CudaComputeTest, ADriverThatDoesNotStartSaysWhy) {
  begin({{"FAKE_CUDA_INIT", "100"}});  // CUDA_ERROR_NO_DEVICE
  const auto driver = open();
  EXPECT_EQ(driver.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("CUDA_ERROR_NO_DEVICE"));
}

TEST_F(CudaComputeTest, ADeviceWithoutMemoryOperationsIsUnsupported) {
  begin({{"FAKE_CUDA_FAULTS", "unsupported=memops"}});
  const auto compute = make();
  EXPECT_EQ(compute.status().code(), Code::unsupported);
  EXPECT_THAT(std::string(compute.status().message()), HasSubstr("stream memory operations"));
}

// The driver has found neither machine code for its GPU nor PTX that it can compile.
TEST_F(CudaComputeTest, KernelsForOtherGpusAreUnsupportedAndNameTheSettingOfTheBuild) {
  for (const char* fault : {"cuLibraryLoadData:1=209", "cuLibraryLoadData:1=222"}) {
    begin({{"FAKE_CUDA_KERNELS", XYLEM_HOST_KERNELS}, {"FAKE_CUDA_FAULTS", fault}});
    const auto compute = make();
    EXPECT_EQ(compute.status().code(), Code::unsupported) << fault;
    EXPECT_THAT(std::string(compute.status().message()), HasSubstr("XYLEM_CUDA_ARCHITECTURES=all"));
  }
}

TEST_F(CudaComputeTest, AKernelThatIsNotThereIsNamed) {
  begin({});  // Without FAKE_CUDA_KERNELS, no kernel is found.
  EXPECT_THAT(make(), fails_with("cuLibraryGetKernel"));
}

class CudaComputeWithKernels : public CudaComputeTest {
 protected:
  /// `delay` is the longest delay of a command, in microseconds.
  void begin_with(const char* faults, const char* delay = "0") {
    begin({{"FAKE_CUDA_KERNELS", XYLEM_HOST_KERNELS},
           {"FAKE_CUDA_FAULTS", faults},
           {"FAKE_CUDA_DELAY_US", delay}});
    compute = value_of(make());
    source = compute->allocate_scratch(kBytes);
    target = compute->allocate_scratch(kBytes);
    ASSERT_NE(source, nullptr);
    ASSERT_NE(target, nullptr);
    must(compute->pin_scratch(source));
    must(compute->pin_scratch(target));
    std::fill_n(source, kBytes, std::byte{7});
    std::fill_n(target, kBytes, std::byte{0});
  }
  void TearDown() override {
    if (compute != nullptr) {
      compute->free_scratch(source);
      compute->free_scratch(target);
      compute.reset();
    }
    CudaComputeTest::TearDown();
  }

  std::shared_ptr<CudaCompute> compute;
  std::byte *source = nullptr, *target = nullptr;
};

TEST_F(CudaComputeWithKernels, ATicketIsDoneWhenTheBytesAreThere) {
  ASSERT_NO_FATAL_FAILURE(begin_with(""));
  for (int round = 0; round < 100; ++round) {
    std::fill_n(source, kBytes, std::byte(round));
    wait(*compute, copy(*compute, target, source));
    ASSERT_EQ(target[kBytes - 1], std::byte(round));
  }
  EXPECT_TRUE(compute->health());
}

// A second load could block until streams that wait have finished.
TEST_F(CudaComputeWithKernels, KernelsAreLoadedOnceInAContext) {
  begin_with("cuLibraryLoadData:2=2");  // A second load would fail.
  const auto other = make();
  EXPECT_TRUE(other) << other.status().to_string();
}

TEST_F(CudaComputeWithKernels, AWorkThatTheDriverRefusesCompletesWithAFault) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuLaunchKernel:2=1"));  // CUDA_ERROR_INVALID_VALUE
  wait(*compute, copy(*compute, target, source));
  EXPECT_TRUE(compute->health());
  wait(*compute, copy(*compute, target, source));
  const Status health = compute->health();
  EXPECT_THAT(health, fails_as(Code::internal, "CUDA device 0"));
  EXPECT_THAT(health, fails_with("cuLaunchKernel"));
}

TEST_F(CudaComputeWithKernels, ATicketWhoseNumberIsNotWrittenCompletesWithAFault) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuStreamWriteValue64_v2:1=1"));
  wait(*compute, copy(*compute, target, source));
  EXPECT_EQ(compute->health().code(), Code::internal);
}

// The device still works after the error, so its work still uses its memory.
TEST_F(CudaComputeWithKernels, AQuestionThatFailsOnceEndsNoWork) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuStreamQuery:1=801", "20000"));  // Not supported.
  Ticket last;
  for (int i = 0; i < 10; ++i) last = copy(*compute, target, source);
  wait(*compute, last);
  EXPECT_EQ(target[kBytes - 1], std::byte{7});
  std::fill_n(target, kBytes, std::byte{1});
  wait(*compute, copy(*compute, target, source));
  EXPECT_EQ(target[kBytes - 1], std::byte{7});
  EXPECT_EQ(compute->health().code(), Code::internal);
}

TEST_F(CudaComputeWithKernels, ALostDeviceEndsAllTicketsAndGates) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuLaunchKernel:3=719"));  // CUDA_ERROR_LAUNCH_FAILED
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(copy(*compute, target, source));
  const auto gate = compute->gate_after(nullptr);
  for (const Ticket ticket : tickets) wait(*compute, ticket);
  if (gate) wait(*compute, *gate);
  EXPECT_EQ(compute->health().code(), Code::internal);
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST_F(CudaComputeWithKernels, ScratchOfTheDeviceIsUsedAgain) {
  ASSERT_NO_FATAL_FAILURE(begin_with(""));
  std::byte* const first = compute->allocate_device_scratch(1000);
  std::byte* const second = compute->allocate_device_scratch(3 * kMiB);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(compute->allocate_device_scratch(0), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % 256, 0U);
  compute->free_device_scratch(first);
  compute->free_device_scratch(second);
  EXPECT_EQ(compute->allocate_device_scratch(4 * kMiB), second);
  EXPECT_EQ(compute->allocate_device_scratch(1), first);
  // The scratch can grow, up to a limit.
  EXPECT_NE(compute->allocate_device_scratch(100 * kMiB), nullptr);
  EXPECT_EQ(compute->allocate_device_scratch(1024 * kMiB), nullptr);
  EXPECT_EQ(compute->allocate_device_scratch(std::uint64_t{1} << 40), nullptr);
}

// An allocation of device memory may block until the stream has finished.
TEST_F(CudaComputeWithKernels, ScratchOfTheDeviceDoesNotGrowWhileAStreamWaits) {
  ASSERT_NO_FATAL_FAILURE(begin_with(""));
  const auto driver = *open();
  CUcontext context = nullptr;
  ASSERT_EQ(driver->cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  CUstream stream = nullptr;
  {
    const CurrentContext current(*driver, context);
    ASSERT_EQ(driver->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    const auto gate = value_of(compute->gate_before(stream));
    EXPECT_NE(compute->allocate_device_scratch(16 * kMiB), nullptr);
    EXPECT_EQ(compute->allocate_device_scratch(20 * kMiB), nullptr);
    EXPECT_NE(compute->allocate_device_scratch(8 * kMiB), nullptr);
    compute->open(gate);
    EXPECT_EQ(driver->cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_NE(compute->allocate_device_scratch(20 * kMiB), nullptr);
    EXPECT_EQ(driver->cuStreamDestroy(stream), CUDA_SUCCESS);
  }
  driver->cuDevicePrimaryCtxRelease(0);
}

TEST_F(CudaComputeTest, ADeviceWithLittleMemoryHasLittleScratch) {
  begin({{"FAKE_CUDA_KERNELS", XYLEM_HOST_KERNELS}, {"FAKE_CUDA_MEMORY_MB", "16"}});
  const auto compute = value_of(make());
  EXPECT_EQ(compute->allocate_device_scratch(1), nullptr);
}

/// Copies from the device to the host, made by DeviceMemory::begin_read() outside of the queues.
class CudaComputeReads : public CudaComputeWithKernels {
 protected:
  using State = transport::DeviceRead::State;

  transport::DeviceMemory& memory() { return *compute->device_memory(); }
  transport::DeviceRead read() {
    return memory().begin_read(target, {source, kBytes, {MemoryKind::cuda, 0}});
  }
  State end_of(const transport::DeviceRead& read) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    State state = memory().state_of(read);
    while (state == State::pending && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      state = memory().state_of(read);
    }
    return state;
  }
};

TEST_F(CudaComputeReads, AreDoneWhenTheBytesAreThere) {
  ASSERT_NO_FATAL_FAILURE(begin_with(""));
  for (int round = 0; round < 100; ++round) {
    std::fill_n(source, kBytes, std::byte(round));
    ASSERT_EQ(end_of(read()), State::done);
    ASSERT_EQ(target[kBytes - 1], std::byte(round));
  }
  EXPECT_TRUE(compute->health());
}

// If the device can access the target, a kernel copies instead of the driver.
TEST_F(CudaComputeReads, OfLentMemoryNeedNoCopyByTheDriver) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuMemcpyAsync:1=1"));
  std::vector<std::byte> lent(2 * kBytes);
  ASSERT_TRUE(memory().register_host(lent.data(), lent.size()));
  const auto read_to = [&](std::size_t offset) {
    return memory().begin_read(lent.data() + offset, {source, kBytes, {MemoryKind::cuda, 0}});
  };
  EXPECT_EQ(end_of(read_to(kBytes)), State::done);
  EXPECT_EQ(lent.back(), std::byte{7});
  EXPECT_TRUE(compute->health());
  CountedWait stream_waits;
  stream_waits.begin();
  EXPECT_FALSE(memory().unregister_host(lent.data())) << "a stream waits";
  stream_waits.end_if([] { return true; });
  EXPECT_TRUE(memory().unregister_host(lent.data()));
  EXPECT_EQ(end_of(read_to(0)), State::failed);
}

TEST_F(CudaComputeReads, ThatTheDriverRefusesFail) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuMemcpyAsync:2=1"));
  const auto first = read(), second = read();
  EXPECT_EQ(memory().state_of(second), State::failed);
  EXPECT_EQ(end_of(first), State::done);
  EXPECT_THAT(compute->health(), fails_as(Code::internal, "CUDA's cuMemcpyAsync failed"));
}

TEST_F(CudaComputeReads, WhoseNumberIsNotWrittenFail) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuStreamWriteValue64_v2:2=1"));
  const auto first = read(), second = read();
  EXPECT_EQ(end_of(second), State::failed);
  EXPECT_EQ(end_of(first), State::done);
  EXPECT_EQ(compute->health().code(), Code::internal);
}

TEST_F(CudaComputeReads, OfALostDeviceFail) {
  ASSERT_NO_FATAL_FAILURE(begin_with("cuStreamQuery:1=719"));  // CUDA_ERROR_LAUNCH_FAILED
  // The number of a copy that the lost device never reaches.
  EXPECT_EQ(end_of({{MemoryKind::cuda, 0}, 1000}), State::failed);
  EXPECT_EQ(compute->health().code(), Code::internal);
}

}  // namespace
}  // namespace xylem::execution::cuda
