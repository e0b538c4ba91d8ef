// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA driver that Xylem calls. The driver's library is opened at run time, so
// a machine without a GPU needs no part of CUDA.
#pragma once

#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace xylem::execution::cuda {

inline CUdeviceptr address(const void* pointer) noexcept {
  return reinterpret_cast<CUdeviceptr>(pointer);
}
inline std::byte* pointer(CUdeviceptr address) noexcept {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// The oldest driver that is supported, as cuDriverGetVersion() counts: 12.0.
inline constexpr int kOldestDriver = 12000;

class NoStreamWaits;  // gates.h

/// An argument of Driver::blocking(), for functions whose documentation says that they may wait for
/// streams.
struct MayWait {};

/// How often the functions of a Driver have been called, and how long threads had a context.
struct DriverCounters {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> nanoseconds{0};
};

/// A function of the driver that counts its calls.
template <typename Function>
class CountedFunction {
 public:
  explicit CountedFunction(DriverCounters& counters) noexcept : counters_(&counters) {}
  void set(Function function) noexcept { function_ = function; }

  template <typename... Arguments>
  auto operator()(Arguments... arguments) const noexcept {
    counters_->calls.fetch_add(1, std::memory_order_relaxed);
    return function_(arguments...);
  }

 private:
  Function function_ = nullptr;
  DriverCounters* counters_;
};

// NOLINTNEXTLINE(bugprone-macro-parentheses): declares a member of this name
#define XYLEM_CUDA(name) CountedFunction<decltype(&::name)> name{*counters};

/// The functions of the driver that may wait for all streams of a context, and that block all other
/// threads that call the driver for this context meanwhile. If a stream waits for a call that one
/// of the blocked threads must carry out, this is a deadlock. So these functions can be reached
/// only through Driver::blocking().
struct BlockingDriver {
  DriverCounters* counters;
#include "cuda/blocking_functions.inc"
};

/// The driver's functions, under their names in cuda.h. The library is never closed, since cuInit()
/// starts threads and creates state that stay in the process. Any thread may call the functions.
struct Driver {
  /// Opens the driver and initialises it. Fails with `unsupported` if there is no driver, if it is
  /// older than kOldestDriver, or if it does not start (no GPU, or no permission); the message
  /// gives the reason.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library = "libcuda.so.1");

  /// The device with this number in this process. Fails with `unsupported` if there is no such
  /// device; the message says how many devices there are. Fails as check() does if the driver
  /// fails.
  Result<CUdevice> device(int number) const;

  /// OK for CUDA_SUCCESS. Otherwise fails: with `exhausted` if memory is lacking, with
  /// `unsupported` if the device does not support the operation, and else with `internal`. The
  /// message names the function and CUDA's error.
  Status check(CUresult result, std::string_view function) const;

  /// The functions that may wait for streams. Use them only while `proof` exists.
  const BlockingDriver& blocking(const NoStreamWaits& /*proof*/) const noexcept {
    return blocking_;
  }
  const BlockingDriver& blocking(MayWait /*reason*/) const noexcept { return blocking_; }

  int version = 0;  ///< As cuDriverGetVersion() counts: 12040 is 12.4.
  const std::unique_ptr<DriverCounters> counters = std::make_unique<DriverCounters>();
#include "cuda/driver_functions.inc"
  /// cuStreamGetCaptureInfo() with the parameters that it has in CUDA 12.0.
  using CaptureInfo = CUresult(
      CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, std::size_t*);
  CountedFunction<CaptureInfo*> capture_info{*counters};

  /// A number that identifies the capture of a stream; nullopt if the stream is not captured.
  Result<std::optional<cuuint64_t>> capture_of(CUstream stream) const;

 private:
  BlockingDriver blocking_{counters.get()};
};
#undef XYLEM_CUDA

/// Makes a context current for the calling thread while the object exists. Meanwhile, calls of the
/// driver by this thread do not invalidate captures of the application, on any stream.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context) noexcept
      : driver_(driver), began_(Clock::now()) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    result_ = driver_.cuCtxPushCurrent(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) driver_.cuCtxPopCurrent(&popped);
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    const std::chrono::nanoseconds span = Clock::now() - began_;
    driver_.counters->nanoseconds.fetch_add(static_cast<std::uint64_t>(span.count()),
                                            std::memory_order_relaxed);
  }
  CUresult result() const noexcept { return result_; }

 private:
  const Driver& driver_;
  const Clock::time_point began_;
  CUresult result_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace xylem::execution::cuda
