// SPDX-License-Identifier: Apache-2.0
//
// A stream of a CUDA device, for tests and benchmarks that include nothing of CUDA. This header
// includes nothing of CUDA either.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <memory>

namespace xylem::execution {

/// The number of CUDA devices that this process can use. Fails with `unsupported` if there is no
/// driver, or if Xylem is built without CUDA; the message gives the reason.
Result<int> count_cuda_devices();

/// A new stream, with the lowest priority. Only one thread at a time may use it.
class CudaStream {
 public:
  /// Creates a stream on a device, and retains the device's primary context while the stream
  /// exists. Fails as count_cuda_devices() does, and with `unsupported` if there is no such device.
  static Result<std::unique_ptr<CudaStream>> make(int device);

  CudaStream() = default;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  /// Blocks until the stream has completed all work that is enqueued on it.
  virtual ~CudaStream() = default;

  /// The CUstream, as a value for Stream::handle.
  virtual void* handle() const noexcept = 0;
  /// Copies on the stream, after the work that is already enqueued on it, and blocks until the copy
  /// has completed. Source and target may each be host memory or memory of a CUDA device.
  virtual Status copy(void* target, const void* source, std::uint64_t bytes) = 0;
  /// Blocks until the stream has completed all work that is enqueued on it.
  virtual Status synchronize() = 0;
};

}  // namespace xylem::execution
