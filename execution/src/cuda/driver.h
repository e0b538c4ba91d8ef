// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA driver that Xylem calls. The driver's library is opened at run time, so
// nothing of CUDA is needed where there is no GPU.
#pragma once

#include "xylem/base/status.h"

#include <cuda.h>

#include <cstddef>
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

/// For Driver::blocking(): the caller's documentation says that it may wait for streams.
struct MayWait {};

// NOLINTNEXTLINE(bugprone-macro-parentheses): declares a member of this name
#define XYLEM_CUDA(name) decltype(&::name) name = nullptr;

/// The functions that may wait for all streams of a context, and stop all threads that call the
/// driver for this context meanwhile. If a stream waits for a call that one of these threads
/// carries out, nothing goes on. Driver::blocking() returns them.
struct BlockingDriver {
#include "cuda/blocking_functions.inc"
};

/// The driver's functions by their names in cuda.h. Never closed, since cuInit() starts threads and
/// state that stay in the process. All threads may call it.
struct Driver {
  /// Opens the driver and initialises it. Fails with `unsupported` if there is no driver, if it is
  /// older than kOldestDriver, or if it does not start (no GPU, or no permission); the message says
  /// which.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library = "libcuda.so.1");

  /// The device with this number in this process. Fails with `unsupported` if there is none; the
  /// message tells how many there are. Fails as check() does if the driver fails.
  Result<CUdevice> device(int number) const;

  /// OK for CUDA_SUCCESS. Otherwise `exhausted` for memory, `unsupported` for what the device
  /// cannot do, and `internal`; the message names the function and CUDA's error.
  Status check(CUresult result, std::string_view function) const;

  /// Functions for use while the argument exists.
  const BlockingDriver& blocking(const NoStreamWaits& /*proof*/) const noexcept {
    return blocking_;
  }
  const BlockingDriver& blocking(MayWait /*reason*/) const noexcept { return blocking_; }

  int version = 0;  ///< As cuDriverGetVersion() counts: 12040 is 12.4.
#include "cuda/driver_functions.inc"

 private:
  BlockingDriver blocking_;
};
#undef XYLEM_CUDA

/// Makes a context current for the calling thread, as long as the object exists. Its calls of the
/// driver do not invalidate a capture of the user meanwhile, on whatever stream.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context) noexcept : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    result_ = driver_.cuCtxPushCurrent(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) driver_.cuCtxPopCurrent(&popped);
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  CUresult result() const noexcept { return result_; }

 private:
  const Driver& driver_;
  CUresult result_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace xylem::execution::cuda
