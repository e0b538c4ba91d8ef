// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, loaded into a device's context.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"
#include "xylem/base/status.h"
#include "xylem/execution/reduce_kernel.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution::cuda {

/// All threads may call launch() functions. The context must be current for every call.
class LoadedKernels {
 public:
  /// [id] of `names` is the name of the kernel that KernelId id stands for, or empty. Loads all of
  /// them now. If the process has loaded them in this context and still uses them, they are shared:
  /// to load kernels waits for all streams of the context, and no thread can give the context work
  /// meanwhile, so a stream that waits for a call would never go on. All threads may call it.
  static Result<std::shared_ptr<const LoadedKernels>> load(std::shared_ptr<const Driver> driver,
                                                           CUcontext context,
                                                           CUdevice device,
                                                           std::span<const std::string> names);
  /// Gives up a reference, and unloads the kernels if it was the last one. Null is allowed. All
  /// threads may call it. Kernels whose last reference is dropped otherwise stay loaded.
  static void release(std::shared_ptr<const LoadedKernels> kernels, const NoStreamWaits& proof);
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;
  ~LoadedKernels() = default;

  /// Enqueues a kernel on a stream. `bytes` is the size of the result. `arguments` are those that
  /// the kernel takes (arguments.h).
  template <class Arguments>
  CUresult launch(CUstream stream,
                  KernelId kernel,
                  std::uint64_t bytes,
                  Arguments& arguments) const noexcept {
    return launch_any(stream, kernels_[kernel], bytes, &arguments);
  }

  /// Enqueues a copy that a kernel makes, between memory that the device reaches by itself.
  /// Copies by the driver (cuMemcpyAsync) from or to memory of the host have few hardware queues.
  /// One that stands behind a call in a stream of the user, such as the copy of a result to the
  /// host, may stop such a copy of the call itself (seen on an H200, `gpu_questions behind`).
  CUresult copy(CUstream stream,
                void* target,
                const void* source,
                std::uint64_t bytes) const noexcept;

 private:
  LoadedKernels(std::shared_ptr<const Driver> driver,
                CUcontext context,
                std::vector<std::string> names) noexcept
      : driver_(std::move(driver)), context_(context), names_(std::move(names)) {}
  Status set_up(CUdevice device);
  Result<CUkernel> find(const std::string& name) const;
  CUresult launch_any(CUstream stream,
                      CUkernel kernel,
                      std::uint64_t bytes,
                      void* arguments) const noexcept;

  const std::shared_ptr<const Driver> driver_;
  const CUcontext context_;
  const std::vector<std::string> names_;
  CUlibrary library_ = nullptr;
  std::vector<CUkernel> kernels_;
  std::array<CUkernel, 4> copies_{};  ///< [n]: of elements of 2^n bytes.
  std::uint32_t most_blocks_ = 1;
};

}  // namespace xylem::execution::cuda
