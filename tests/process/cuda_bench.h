// SPDX-License-Identifier: Apache-2.0
//
// A stream and buffers for programs that test calls on device memory over the stand-in for the CUDA
// driver. Planned faults do not affect the driver calls of CudaBench itself.
#pragma once

#include "cuda/driver.h"
#include "xylem/xylem.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::test {

/// Time limit for events that must follow a fault.
inline constexpr std::chrono::seconds kSoon{8};

/// The functions of the stand-in for tests (fake_cuda.h). get() ends the process if libcuda.so.1 is
/// not the stand-in.
struct StandIn {
  void (*exempt)(int) = nullptr;
  void (*forbid_opened)(int) = nullptr;
  void (*reset)() = nullptr;
  unsigned long (*calls)(const char*) = nullptr;
  unsigned long (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;

  static const StandIn& get();
};

/// A stream on a device, an input and an output in the device's memory, and host memory for their
/// contents. Only one thread may use an object. The device's context is current in this thread
/// during the object's lifetime.
class CudaBench {
 public:
  /// Makes buffers of twice `count` words.
  CudaBench(int device, std::uint64_t count);
  CudaBench(const CudaBench&) = delete;
  CudaBench& operator=(const CudaBench&) = delete;
  /// Frees nothing, since streams may still use the memory. The end of the process frees it.
  ~CudaBench();

  Memory kind() const noexcept { return {MemoryKind::cuda, device_}; }
  Stream stream() const noexcept { return {stream_, kind()}; }
  void* input() const noexcept { return reinterpret_cast<void*>(input_); }
  void* output() const noexcept { return reinterpret_cast<void*>(output_); }
  std::uint32_t* before() noexcept { return before_; }
  const std::uint32_t* after() const noexcept { return after_; }

  /// produce() enqueues a copy of words from before() to `memory`, consume() a copy from `memory`
  /// to after(). Neither waits for the copy.
  void produce(void* memory, std::uint64_t count);
  void consume(const void* memory, std::uint64_t count);

  enum class State : std::uint8_t { done, lost, stalled };
  /// Waits until the stream has finished its work. Returns `lost` if the device is lost, and
  /// `stalled` if the work is not finished within kSoon.
  State wait();

 private:
  void must(CUresult result) const;

  const int device_;
  std::shared_ptr<const execution::cuda::Driver> driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr input_ = 0, output_ = 0;
  std::uint32_t *before_ = nullptr, *after_ = nullptr;
  std::uint64_t *marker_ = nullptr, number_ = 0;
};

}  // namespace xylem::test
