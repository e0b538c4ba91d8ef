// SPDX-License-Identifier: Apache-2.0
//
// The number of allocations of another process that a CUDA device keeps open, over the stand-in for
// the driver.
#include "cuda/cuda_compute.h"
#include "unit/fake_cuda_processes.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace xylem::execution::cuda {
namespace {

using transport::DevicePlace;

constexpr std::size_t kAllocations = 300;
constexpr std::size_t kKeptOpen = 64, kMostOpen = 256;
constexpr Memory kReader{MemoryKind::cuda, 0};

class CudaSharedMemory : public fake_cuda::test::FakeCudaProcesses {
 protected:
  struct Exported {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
  };

  /// Starts a peer that exports allocations of kBytes. They exist until end_peer().
  void begin_peer() {
    ASSERT_NO_FATAL_FAILURE(fork_peer([this] {
      start();
      for (std::size_t i = 0; i < kAllocations; ++i) {
        Exported exported;
        exported.address = allocate(kBytes);
        EXPECT_EQ(CU(cuIpcGetMemHandle)(&exported.handle, exported.address), CUDA_SUCCESS);
        send(exported);
      }
      (void)receive<char>();
    }));
    for (std::uint64_t i = 0; i < kAllocations; ++i) {
      const auto exported = receive<Exported>();
      DevicePlace place;
      std::memcpy(place.handle.data(), &exported.handle, sizeof exported.handle);
      place.process = 7;
      place.allocation = i + 1;
      place.address = exported.address;
      places.push_back(place);
    }
    ::setenv("FAKE_CUDA_DEVICES", "2", 1);
    ::setenv("FAKE_CUDA_KERNELS", XYLEM_FAKE_CUDA_KERNELS, 1);
    driver = *Driver::open(XYLEM_FAKE_CUDA);
  }
  /// Creates new devices, which have no allocations open.
  void renew_devices() {
    computes = {};
    EXPECT_EQ(opened(), 0);
    for (int device = 0; device < 2; ++device) {
      CudaOptions options;
      options.device = device;
      computes[device] = *CudaCompute::make(driver, options);
    }
  }
  void end_peer() {
    send('e');
    expect_success_of_peer();
  }
  void expect_bounds();
  void expect_nothing_closed_while_a_stream_waits();
  void expect_freed_memory_to_be_closed_first();
  transport::DeviceMemory& memory() { return *computes[0]->device_memory(); }
  bool open_and_close(std::size_t place) {
    const bool is_open = memory().open(places[place], kBytes, kReader) != nullptr;
    if (is_open) memory().close(places[place], kReader);
    return is_open;
  }
  static unsigned long calls(const char* function) {
    return counted<unsigned long>("calls", function);
  }
  static std::size_t opened() { return counted<std::size_t>("live", "opened"); }

  static constexpr std::uint64_t kBytes = 256;
  std::vector<DevicePlace> places;
  std::shared_ptr<const Driver> driver;
  std::array<std::shared_ptr<CudaCompute>, 2> computes;

 private:
  template <typename Count>
  static Count counted(const char* function, const char* what) {
    void* const library = dlopen(XYLEM_FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD);
    const auto count = reinterpret_cast<Count (*)(const char*)>(
        dlsym(library, (std::string("fake_cuda_") + function).c_str()));
    dlclose(library);
    return count(what);
  }
};

void CudaSharedMemory::expect_bounds() {
  renew_devices();
  for (std::size_t i = 0; i < kAllocations; ++i) {
    ASSERT_TRUE(open_and_close(i)) << i;
    ASSERT_LE(opened(), kKeptOpen);
  }
  const auto before = calls("cuIpcOpenMemHandle_v2");
  for (std::size_t i = kAllocations - kKeptOpen; i < kAllocations; ++i) open_and_close(i);
  EXPECT_EQ(calls("cuIpcOpenMemHandle_v2"), before) << "the last ones are kept";
  EXPECT_FALSE(memory().open(places[0], kBytes + 1, kReader)) << "it is smaller";
  // An allocation that is being read is not closed.
  for (std::size_t i = 0; i < kAllocations; ++i) {
    ASSERT_EQ(memory().open(places[i], kBytes, kReader) != nullptr, i < kMostOpen) << i;
  }
  EXPECT_EQ(opened(), kMostOpen);
  for (std::size_t i = 0; i < kMostOpen; ++i) memory().close(places[i], kReader);
  EXPECT_LE(opened(), kKeptOpen);
}

// Closing memory may block until all streams of the process have finished, including streams of
// other libraries.
void CudaSharedMemory::expect_nothing_closed_while_a_stream_waits() {
  renew_devices();
  CUcontext context = nullptr;
  ASSERT_EQ(driver->cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  const CurrentContext current(*driver, context);
  CUstream stream = nullptr;
  ASSERT_EQ(driver->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  const Ticket gate = *computes[1]->gate_before(stream);
  for (std::size_t i = 0; i < kAllocations; ++i) {
    ASSERT_EQ(open_and_close(i), i < kMostOpen) << i;
  }
  EXPECT_EQ(opened(), kMostOpen);
  computes[1]->open(gate);
  EXPECT_TRUE(open_and_close(kMostOpen));
  EXPECT_LE(opened(), kKeptOpen);
  ASSERT_EQ(driver->cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(driver->cuStreamDestroy(stream), CUDA_SUCCESS);
  driver->cuDevicePrimaryCtxRelease(1);
}

// If a peer reports a new allocation at addresses that it has reported before, the old allocation
// has been freed.
void CudaSharedMemory::expect_freed_memory_to_be_closed_first() {
  renew_devices();
  for (std::size_t i = 0; i < kKeptOpen - 1; ++i) ASSERT_TRUE(open_and_close(i));
  const std::size_t freed = kKeptOpen - 2, next = kKeptOpen;
  places[next].address = places[freed].address + kBytes / 2;
  ASSERT_TRUE(open_and_close(next));
  ASSERT_TRUE(open_and_close(next + 1));  // For this allocation, one other is closed.
  const auto before = calls("cuIpcOpenMemHandle_v2");
  EXPECT_TRUE(open_and_close(0));
  EXPECT_EQ(calls("cuIpcOpenMemHandle_v2"), before) << "the oldest one is still open";
  EXPECT_TRUE(open_and_close(freed));
  EXPECT_EQ(calls("cuIpcOpenMemHandle_v2"), before + 1);
}

// There is only one test, since this process cannot fork after it has loaded the driver.
TEST_F(CudaSharedMemory, StaysOpenWithinBounds) {
  ASSERT_NO_FATAL_FAILURE(begin_peer());
  expect_bounds();
  expect_nothing_closed_while_a_stream_waits();
  expect_freed_memory_to_be_closed_first();
  renew_devices();
  computes = {};
  end_peer();
}

}  // namespace
}  // namespace xylem::execution::cuda
