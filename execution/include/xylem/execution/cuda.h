// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices, if Xylem is built with CUDA. This header needs nothing of CUDA.
#pragma once

#include "xylem/base/status.h"
#include "xylem/execution/compute.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace xylem::execution {

struct CudaOptions {
  int device = 0;            ///< The device's number in this process, as cuDeviceGet() counts.
  std::uint32_t queues = 4;  ///< At least 1. Each is a stream.
  /// [id] is the name of the kernel that KernelId id stands for, or empty
  /// (src/cuda/kernels/arguments.h).
  std::vector<std::string> kernel_names{};
  std::string driver = "libcuda.so.1";  ///< The driver's library.
  /// Scratch of the device for each mesh, a multiple of 64; the same on all ranks.
  std::uint64_t mesh_scratch_bytes = std::uint64_t{16} << 20;
  /// False if the streams of this process have one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1).
  /// Then nothing runs on a GPU while one of them waits: neither what would end the wait, nor what
  /// would let the stream go on after an error. So there is no gate_before() and no mesh.
  bool streams_may_wait = true;
};

/// Opens the driver, makes the device's streams and loads the kernels. That may have to wait for
/// what runs on the device. Fails with `unsupported` if there is no driver or no such device, or if
/// Xylem is built without CUDA; the message says which. The driver is never closed.
Result<std::shared_ptr<Compute>> make_cuda_compute(const CudaOptions& options);

/// Allocates memory of a device, aligned to 256 bytes, whose contents are undefined. Keeps the
/// device's primary context until the memory is freed. Fails as make_cuda_compute() does, with
/// `invalid_argument` for 0 bytes, and with `exhausted` if the device has too little memory. All
/// threads may call it.
Result<void*> allocate_on_cuda(std::uint64_t bytes, int device);
/// Frees memory that allocate_on_cuda() returned, after waiting for everything that is enqueued on
/// the device. Empty if it is other memory, which is not touched. All threads may call it.
std::optional<Status> free_on_cuda(void* memory);

}  // namespace xylem::execution
