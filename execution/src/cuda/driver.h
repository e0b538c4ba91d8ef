// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA driver that Xylem calls. The driver's library is opened at run time, so
// a machine without a GPU needs no part of CUDA.
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

/// An argument of Driver::blocking(), for functions whose documentation says that they may wait for
/// streams.
struct MayWait {};

// NOLINTNEXTLINE(bugprone-macro-parentheses): declares a member of this name
#define XYLEM_CUDA(name) decltype(&::name) name = nullptr;

/// The functions of the driver that may wait for all streams of a context, and that block all other
/// threads that call the driver for this context meanwhile. If a stream waits for a call that one
/// of the blocked threads must carry out, this is a deadlock. So these functions can be reached
/// only through Driver::blocking().
struct BlockingDriver {
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
#include "cuda/driver_functions.inc"

 private:
  BlockingDriver blocking_;
};
#undef XYLEM_CUDA

/// Makes a context current for the calling thread while the object exists. Meanwhile, calls of the
/// driver by this thread do not invalidate captures of the application, on any stream.
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
