// SPDX-License-Identifier: Apache-2.0
//
// Makes the Compute of a CUDA device, and allocates memory of CUDA devices. The functions fail if
// Xylem is built without CUDA. This header includes nothing of CUDA.
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
  std::uint32_t queues = 4;  ///< At least 1. Each queue is a stream.
  /// kernel_names[id] is the name of the kernel with the KernelId `id`, or empty if there is none
  /// (src/cuda/kernels/arguments.h).
  std::vector<std::string> kernel_names{};
  std::string driver = "libcuda.so.1";  ///< File name of the driver's library.
  /// Size of the staging memory of each mesh: a multiple of 64, and the same on all ranks.
  std::uint64_t mesh_staging_bytes = std::uint64_t{16} << 20;
  /// How many streams may wait in calls of meshes at a time. 0 if all streams of this process share
  /// one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1). A stream that waits then blocks all other
  /// work of this process on the GPU, even the work that would end the wait. So gate_before() and
  /// make_mesh() fail with `unsupported`.
  std::uint32_t most_waiting_streams = 4;
  /// For tests and measurements with few ranks: small calls of a mesh are one kernel, which waits
  /// for peers, even if ranks share the device.
  bool fuses_on_shared_devices = false;
};

/// Opens the driver, creates the device's streams and loads the kernels, which may wait for work
/// that runs on the device. Fails with `unsupported` if there is no driver or no such device, or if
/// Xylem is built without CUDA; the message gives the reason. The driver's library is never closed.
Result<std::shared_ptr<Compute>> make_cuda_compute(const CudaOptions& options);

/// Allocates memory of a device, aligned to 256 bytes, whose contents are undefined. Retains the
/// device's primary context until the memory is freed. Fails as make_cuda_compute() does, with
/// `invalid_argument` for 0 bytes, and with `exhausted` if the device has too little memory. Any
/// thread may call it.
Result<void*> allocate_on_cuda(std::uint64_t bytes, int device);
/// Frees memory that allocate_on_cuda() returned, after waiting for all work that is enqueued on
/// the device. Returns nullopt, and does nothing, if allocate_on_cuda() did not return this memory.
/// Any thread may call it.
std::optional<Status> free_on_cuda(void* memory);

}  // namespace xylem::execution
