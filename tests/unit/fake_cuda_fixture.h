// SPDX-License-Identifier: Apache-2.0
//
// Loads the stand-in for the CUDA driver for a test, with the settings of the test.
#pragma once

#include "fakes/cuda_driver/fake_cuda.h"
#include "fakes/cuda_driver/test_kernels.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <source_location>
#include <string>
#include <vector>

/// Finds a function of the driver: CU(cuMemAlloc)(&address, bytes). The name refers to the version
/// that cuda.h defines, as in programs that are linked to the driver.
#define CU(name) (find<decltype(&(name))>(#name))

namespace xylem::fake_cuda::test {

class FakeCuda : public testing::Test {
 protected:
  using Environment = std::map<std::string, std::string>;

  FakeCuda() = default;
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda() override {
    for (const auto& [name, value] : environment_) unsetenv(name.c_str());
    if (library_ == nullptr) return;
    dlclose(library_);
    EXPECT_EQ(dlopen(XYLEM_FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD), nullptr) << "not unloaded";
  }

  /// Loads the driver. A second call starts a new driver.
  void load(const Environment& environment = {}) {
    for (const auto& [name, value] : environment_) unsetenv(name.c_str());
    environment_ = environment;
    environment_.emplace("FAKE_CUDA_KERNELS", XYLEM_FAKE_CUDA_KERNELS);
    for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
    if (library_ != nullptr) {
      exported<decltype(&fake_cuda_reset)>("fake_cuda_reset")();
    } else {
      library_ = dlopen(XYLEM_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
      ASSERT_NE(library_, nullptr) << dlerror();
    }
  }

  /// Loads the driver, and makes the context of the first device current.
  void start(const Environment& environment = {}) {
    ASSERT_NO_FATAL_FAILURE(load(environment));
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    context_ = retain(0);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
  }

  /// The context of the first device.
  CUcontext context() const noexcept { return context_; }

  template <typename Function>
  Function exported(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  template <typename Function>
  Function find(const char* name) const {
    const auto look_up = exported<decltype(&cuGetProcAddress)>("cuGetProcAddress_v2");
    void* function = nullptr;
    EXPECT_EQ(look_up(name, &function, CUDA_VERSION, 0, nullptr), CUDA_SUCCESS);
    EXPECT_NE(function, nullptr) << name;
    return reinterpret_cast<Function>(function);
  }

  unsigned long misuses() const {
    return exported<decltype(&fake_cuda_misuses)>("fake_cuda_misuses")();
  }
  std::string last_misuse() const {
    return exported<decltype(&fake_cuda_last_misuse)>("fake_cuda_last_misuse")();
  }
  unsigned long calls(const char* name) const {
    return exported<decltype(&fake_cuda_calls)>("fake_cuda_calls")(name);
  }
  std::size_t live(const char* kind) const {
    return exported<decltype(&fake_cuda_live)>("fake_cuda_live")(kind);
  }
  std::uint32_t* view(CUdeviceptr address) const {
    const auto host_view = exported<decltype(&fake_cuda_host_view)>("fake_cuda_host_view");
    return static_cast<std::uint32_t*>(host_view(reinterpret_cast<const void*>(address)));
  }

  /// Fails the test if `result` is not CUDA_SUCCESS.
  static void must(CUresult result, std::source_location at = std::source_location::current()) {
    if (result == CUDA_SUCCESS) return;
    ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line())) << "error " << result;
  }

  CUcontext retain(CUdevice device) const {
    CUcontext context = nullptr;
    must(CU(cuDevicePrimaryCtxRetain)(&context, device));
    return context;
  }
  CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr address = 0;
    must(CU(cuMemAlloc)(&address, bytes));
    return address;
  }
  /// Allocates pinned host memory, filled with zeros.
  std::uint32_t* allocate_host(std::size_t words) const {
    void* address = nullptr;
    must(CU(cuMemHostAlloc)(&address, words * sizeof(std::uint32_t), 0));
    return static_cast<std::uint32_t*>(address);
  }
  static CUdeviceptr on_device(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }
  CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream stream = nullptr;
    must(CU(cuStreamCreate)(&stream, flags));
    return stream;
  }
  CUevent make_event() const {
    CUevent event = nullptr;
    must(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    return event;
  }
  /// Makes stream `to` wait for all work that is enqueued on `from`.
  void order(CUstream from, CUstream to) const {
    const CUevent event = make_event();
    must(CU(cuEventRecord)(event, from));
    must(CU(cuStreamWaitEvent)(to, event, 0));
    must(CU(cuEventDestroy)(event));
  }
  /// Makes a stream wait until open() is called for `gate`, a word of pinned memory that is 0.
  void hold(CUstream stream, const std::uint32_t* gate) const {
    must(CU(cuStreamWaitValue32)(stream, on_device(gate), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  static void open(std::uint32_t* gate) { std::atomic_ref<std::uint32_t>(*gate).store(1); }
  template <typename Value>
  Value attribute(CUpointer_attribute which, CUdeviceptr address) const {
    Value value = {};
    must(CU(cuPointerGetAttribute)(static_cast<void*>(&value), which, address));
    return value;
  }
  /// Returns the words at a device address, after all earlier commands in `stream` or in the NULL
  /// stream have run.
  std::vector<std::uint32_t> words_at(CUdeviceptr address,
                                      std::size_t count,
                                      CUstream stream = nullptr) const {
    std::vector<std::uint32_t> words(count);
    must(CU(cuMemcpyDtoHAsync)(words.data(), address, count * sizeof(std::uint32_t), stream));
    return words;
  }

  CUfunction kernel(const char* name) const {
    CUlibrary library = nullptr;
    CUkernel found = nullptr;
    CUfunction function = nullptr;
    must(CU(cuLibraryLoadData)(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0));
    must(CU(cuLibraryGetKernel)(&found, library, name));
    must(CU(cuKernelGetFunction)(&function, found));
    return function;
  }
  CUresult launch(CUfunction function,
                  CUdeviceptr target,
                  CUdeviceptr source,
                  std::uint64_t count,
                  CUstream stream,
                  unsigned blocks = 4,
                  unsigned threads = 8) const {
    TestArguments arguments;
    arguments.target = reinterpret_cast<std::uint32_t*>(target);
    arguments.source = reinterpret_cast<const std::uint32_t*>(source);
    arguments.count = count;
    void* parameters[] = {&arguments};
    return CU(cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters,
                              nullptr);
  }

  /// Queries whether a stream is idle, until it is idle or `time` has passed.
  CUresult query_for(CUstream stream, std::chrono::milliseconds time) const {
    const auto deadline = std::chrono::steady_clock::now() + time;
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
      result = CU(cuStreamQuery)(stream);
    }
    return result;
  }

 private:
  CUcontext context_ = nullptr;
  Environment environment_;
  void* library_ = nullptr;
};

}  // namespace xylem::fake_cuda::test
