// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, loaded into a device's context.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"
#include "xylem/base/status.h"
#include "xylem/execution/reduce_kernel.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution::cuda {

/// All threads may call launch() functions. The context must be current for every call, and for the
/// end of the object.
class LoadedKernels {
 public:
  /// [id] of `names` is the name of the kernel that KernelId id stands for, or empty. Loads all of
  /// them now: the first launch of a kernel that is not loaded may wait for the device.
  static Result<std::shared_ptr<const LoadedKernels>> load(std::shared_ptr<const Driver> driver,
                                                           CUdevice device,
                                                           std::span<const std::string> names);
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;
  ~LoadedKernels();

  /// Gives a kernel to a stream. `bytes` is the size of the result.
  CUresult launch(CUstream stream,
                  KernelId kernel,
                  std::uint64_t bytes,
                  ReduceArguments& arguments) const noexcept {
    return launch_any(stream, kernel, bytes, &arguments);
  }
  CUresult launch(CUstream stream,
                  KernelId kernel,
                  std::uint64_t bytes,
                  ScaleArguments& arguments) const noexcept {
    return launch_any(stream, kernel, bytes, &arguments);
  }

  CUresult launch(CUstream stream, KernelId kernel, SignalArguments& arguments) const noexcept {
    return launch_any(stream, kernel, 0, &arguments);
  }

 private:
  explicit LoadedKernels(std::shared_ptr<const Driver> driver) noexcept
      : driver_(std::move(driver)) {}
  Status set_up(CUdevice device, std::span<const std::string> names);
  CUresult launch_any(CUstream stream,
                      KernelId kernel,
                      std::uint64_t bytes,
                      void* arguments) const noexcept;

  const std::shared_ptr<const Driver> driver_;
  CUlibrary library_ = nullptr;
  std::vector<CUkernel> kernels_;
  std::uint32_t most_blocks_ = 1;
};

}  // namespace xylem::execution::cuda
