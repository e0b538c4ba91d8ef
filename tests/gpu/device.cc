// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "cuda/device_kernels.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

namespace xylem::test::gpu {

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

[[noreturn]] void end_with(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

}  // namespace

Device::Device() {
  const char* library = std::getenv("CUDA_DRIVER");
  auto driver = Driver::open(library == nullptr ? "libcuda.so.1" : library);
  if (!driver) end_with(std::string(driver.status().message()));
  driver_ = *driver;
  CUdevice device = 0;
  must(driver_->cuDeviceGet(&device, 0), "cuDeviceGet");
  must(driver_->cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
  must(driver_->cuCtxPushCurrent(context_), "cuCtxPushCurrent");
}

void Device::must(CUresult result, const char* function) const {
  const Status status = driver_->check(result, function);
  if (!status) end_with(std::string(status.message()));
}

std::string Device::name_of(CUresult result) const {
  const char* name = nullptr;
  if (driver_->cuGetErrorName(result, &name) != CUDA_SUCCESS) return std::to_string(result);
  return name;
}

CUdeviceptr Device::allocate(std::size_t bytes) const {
  CUdeviceptr memory = 0;
  must(driver_->cuMemAlloc(&memory, bytes), "cuMemAlloc");
  return memory;
}

std::uint64_t* Device::allocate_words(std::size_t count) const {
  void* memory = nullptr;
  must(driver_->cuMemHostAlloc(&memory, count * sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
       "cuMemHostAlloc");
  auto* const words = static_cast<std::uint64_t*>(memory);
  std::fill_n(words, count, 0);
  return words;
}

CUstream Device::make_stream(int priority) const {
  CUstream stream = nullptr;
  must(driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
       "cuStreamCreateWithPriority");
  return stream;
}

CUstream Device::make_urgent_stream() const {
  int least = 0, greatest = 0;
  must(driver_->cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
  return make_stream(greatest);
}

void Device::load_kernel() {
  must(blocking().cuLibraryLoadData(&library_, execution::cuda::device_kernels().data(), nullptr,
                                    nullptr, 0, nullptr, nullptr, 0),
       "cuLibraryLoadData");
  CUkernel kernel = nullptr;
  must(driver_->cuLibraryGetKernel(&kernel, library_, "xylem_reduce_sum_uint32"),
       "cuLibraryGetKernel");
  must(blocking().cuKernelGetFunction(&kernel_, kernel), "cuKernelGetFunction");
}

CUresult Device::launch_another(CUdeviceptr target, CUstream stream) {
  CUkernel kernel = nullptr;
  must(driver_->cuLibraryGetKernel(&kernel, library_, "xylem_reduce_max_int16"),
       "cuLibraryGetKernel");
  execution::cuda::ReduceArguments arguments;
  arguments.target = reinterpret_cast<void*>(target);
  arguments.count = 1;
  arguments.source_count = 1;
  arguments.sources[0] = reinterpret_cast<const void*>(target);
  void* parameters[] = {&arguments};
  return driver_->cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream,
                                 parameters, nullptr);
}

CUresult Device::launch(CUdeviceptr target,
                        CUdeviceptr source,
                        std::size_t bytes,
                        CUstream stream) const {
  constexpr unsigned kBlocks = 64, kThreads = 256;
  execution::cuda::ReduceArguments arguments;
  arguments.target = reinterpret_cast<void*>(target);
  arguments.count = bytes / sizeof(std::uint32_t);
  arguments.source_count = 1;
  arguments.sources[0] = reinterpret_cast<const void*>(source);
  void* parameters[] = {&arguments};
  return driver_->cuLaunchKernel(kernel_, kBlocks, 1, 1, kThreads, 1, 1, 0, stream, parameters,
                                 nullptr);
}

namespace {

constexpr std::size_t kWork = std::size_t{1} << 20;

}  // namespace

StreamWork::StreamWork(const Device& device, CUstream stream)
    : device_(device),
      stream_(stream),
      source_(device.allocate(kWork)),
      target_(device.allocate(kWork)) {}

std::string StreamWork::run() const {
  constexpr int kRounds = 50;
  const auto begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    device_.must(device_.driver().cuMemcpyAsync(target_, source_, kWork, stream_), "cuMemcpyAsync");
    device_.must(device_.launch(target_, source_, kWork, stream_), "cuLaunchKernel");
    const CUresult result = wait_for(device_, stream_, std::chrono::seconds(2));
    if (result == CUDA_ERROR_NOT_READY) return "does NOT run within 2 s";
    device_.must(result, "cuStreamQuery");
  }
  return "runs, " + rounded(microseconds_since(begin) / kRounds) + " for a copy and a kernel";
}

void StreamWork::end() const {
  device_.must(wait_for(device_, stream_, std::chrono::seconds(5)), "cuStreamQuery");
}

std::string StreamWork::free() const {
  const auto begin = Clock::now();
  device_.must(device_.blocking().cuMemFree(target_), "cuMemFree");
  return rounded(microseconds_since(begin));
}

WaitingStream::WaitingStream(const Device& device, CUstream stream)
    : device_(device), stream_(stream), word_(device.allocate_words(1)) {}

void WaitingStream::begin() {
  ++round_;
  device_.must(device_.driver().cuStreamWaitValue64(stream_, reinterpret_cast<CUdeviceptr>(word_),
                                                    round_, CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue64");
}

bool WaitingStream::is_waiting() const {
  return device_.driver().cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY;
}

void WaitingStream::end() {
  const CUresult result = wait_for(device_, stream_, std::chrono::seconds(5));
  if (result != CUDA_SUCCESS) end_with("the stream does not go on: " + device_.name_of(result));
}

Watched watch(const Device& device,
              const std::function<void()>& call,
              const std::function<void()>& release) {
  // The thread may outlive this function, so they share what they tell each other.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_returned = false;
    double microseconds = 0;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, call, &device] {
    device.must(device.driver().cuCtxPushCurrent(device.context()), "cuCtxPushCurrent");
    const auto begin = Clock::now();
    call();
    const std::lock_guard lock(shared->mutex);
    shared->microseconds = microseconds_since(begin);
    shared->has_returned = true;
    shared->changed.notify_all();
  }).detach();
  const auto has_returned_within = [&shared](std::chrono::seconds limit) {
    std::unique_lock lock(shared->mutex);
    return shared->changed.wait_for(lock, limit, [&] { return shared->has_returned; });
  };
  Watched watched;
  if (has_returned_within(std::chrono::seconds(1))) {
    watched.end = Watched::End::at_once;
  } else {
    release();
    if (has_returned_within(std::chrono::seconds(2))) watched.end = Watched::End::released;
  }
  const std::lock_guard lock(shared->mutex);
  watched.microseconds = shared->microseconds;
  return watched;
}

double microseconds_since(Clock::time_point begin) {
  return Microseconds(Clock::now() - begin).count();
}

std::string rounded(double microseconds) {
  return std::to_string(static_cast<long>(microseconds)) + " us";
}

std::string to_string(const Watched& watched) {
  switch (watched.end) {
    case Watched::End::at_once:
      return "returns while the stream waits, after " +
             std::to_string(static_cast<long>(watched.microseconds)) + " us";
    case Watched::End::released: return "WAITS until the stream goes on";
    case Watched::End::never: break;
  }
  return "HANGS, even when the stream goes on";
}

CUresult wait_for(const Device& device, CUstream stream, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY && Clock::now() < end) {
    result = device.driver().cuStreamQuery(stream);
    std::this_thread::yield();
  }
  return result;
}

void answer(const std::string& question, const std::string& subject, const std::string& text) {
  std::cout << nlohmann::json{{"question", question}, {"subject", subject}, {"answer", text}}
            << std::endl;
}

}  // namespace xylem::test::gpu
