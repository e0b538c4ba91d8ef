// SPDX-License-Identifier: Apache-2.0
//
// What a program needs that tests calls on device memory over the stand-in for the CUDA driver: a
// stream and buffers, and the test's own calls of the driver, which no planned fault makes fail.
#pragma once

#include "cuda/driver.h"
#include "xylem/xylem.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace xylem::test {

/// For each thing to happen that must happen after a fault.
inline constexpr std::chrono::seconds kSoon{8};

/// The functions by which a test talks to the stand-in (fake_cuda.h). Ends the process if
/// libcuda.so.1 is not the stand-in.
struct StandIn {
  void (*exempt)(int) = nullptr;
  void (*forbid_opened)(int) = nullptr;
  void (*reset)() = nullptr;
  unsigned long (*calls)(const char*) = nullptr;
  unsigned long (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;

  static const StandIn& get();
};

/// A stream of the test on a device, an input and an output there, and what the stream writes and
/// reads. For one thread, which has the device's context as its current one meanwhile.
class CudaBench {
 public:
  /// Buffers of twice `count` words.
  CudaBench(int device, std::uint64_t count);
  CudaBench(const CudaBench&) = delete;
  CudaBench& operator=(const CudaBench&) = delete;
  /// Leaves everything to the end of the process, since streams may not have gone on.
  ~CudaBench();

  Memory kind() const noexcept { return {MemoryKind::cuda, device_}; }
  Stream stream() const noexcept { return {stream_, kind()}; }
  void* input() const noexcept { return reinterpret_cast<void*>(input_); }
  void* output() const noexcept { return reinterpret_cast<void*>(output_); }
  std::uint32_t* before() noexcept { return before_; }
  const std::uint32_t* after() const noexcept { return after_; }

  /// Lets the stream write words of before() to memory, or read them to after(). Do not wait.
  void produce(void* memory, std::uint64_t count);
  void consume(const void* memory, std::uint64_t count);

  enum class State : std::uint8_t { done, lost, stalled };
  /// Waits until the stream has done what it was given. `lost` if the device is lost, and `stalled`
  /// if the stream does not go on within kSoon.
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
