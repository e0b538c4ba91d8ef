// SPDX-License-Identifier: Apache-2.0
//
// A stream of a CUDA device, for programs that measure or test calls on device memory and know
// nothing of CUDA themselves. This header needs nothing of CUDA either.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <memory>

namespace xylem::execution {

/// The number of CUDA devices that this process sees. Fails with `unsupported` if there is no
/// driver, or if Xylem is built without CUDA; the message says which.
Result<int> count_cuda_devices();

/// A stream of its own, of the least priority. For one thread at a time.
class CudaStream {
 public:
  /// Keeps the device's primary context while the stream exists. Fails as count_cuda_devices()
  /// does, and with `unsupported` if there is no such device.
  static Result<std::unique_ptr<CudaStream>> make(int device);

  CudaStream() = default;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Waits until the stream has done what is enqueued on it.
  virtual ~CudaStream() = default;

  /// What Stream::handle wants.
  virtual void* handle() const noexcept = 0;
  /// Copies between any two of host memory and memory of CUDA devices: after what was
  /// enqueued on the stream before. Waits for the end.
  virtual Status copy(void* target, const void* source, std::uint64_t bytes) = 0;
  /// Waits until the stream has done what is enqueued on it.
  virtual Status synchronize() = 0;
};

}  // namespace xylem::execution
