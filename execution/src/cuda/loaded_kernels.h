// SPDX-License-Identifier: Apache-2.0
//
// The device kernels, loaded into a device's context.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"
#include "xylem/base/status.h"
#include "xylem/execution/reduce_kernel.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xylem::execution::cuda {

/// Any thread may call launch() and copy(). The context must be current for every call.
class LoadedKernels {
 public:
  /// names[id] is the name of the kernel with the KernelId `id`, or empty if there is none. Loads
  /// all named kernels. Kernels that this process has already loaded in this context, and still
  /// uses, are shared. Sharing is important: loading waits for all streams of the context, and
  /// during this time no thread can enqueue work in the context. If a stream waited for a call,
  /// this would be a deadlock. Any thread may call this.
  static Result<std::shared_ptr<const LoadedKernels>> load(std::shared_ptr<const Driver> driver,
                                                           CUcontext context,
                                                           CUdevice device,
                                                           std::span<const std::string> names);
  /// Drops a reference, and unloads the kernels if it was the last one. `kernels` may be null. Any
  /// thread may call this. If the last reference is dropped without this function, the kernels stay
  /// loaded.
  static void release(std::shared_ptr<const LoadedKernels> kernels, const NoStreamWaits& proof);
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;
  ~LoadedKernels() = default;

  /// A block computes at least this many bytes of the result, if there are as many.
  static constexpr std::uint64_t kBytesPerBlock = 4096;
  /// Reserves room for the blocks of a kernel that waits for other devices, so that all such blocks
  /// of this process fit on the device at once. Returns their number, at most `most`; 0 if there is
  /// no room. release_blocks() releases the room.
  std::uint32_t reserve_blocks(std::uint32_t most) const noexcept;
  void release_blocks(std::uint32_t count) const noexcept { reserved_ -= count; }

  /// Enqueues a kernel on a stream. `bytes` is the size of the result. `arguments` are those that
  /// the kernel takes (arguments.h).
  template <class Arguments>
  CUresult launch(CUstream stream,
                  KernelId kernel,
                  std::uint64_t bytes,
                  Arguments& arguments) const noexcept {
    return launch_any(stream, kernels_[kernel], bytes, &arguments);
  }

  /// Enqueues a copy that a kernel makes. The device must be able to access source and target.
  /// cuMemcpyAsync is not used, since the driver's copies from and to the host share few hardware
  /// queues: a copy that the application enqueues behind a call, such as a copy of the result to
  /// the host, could block a copy of the call itself (observed on an H200, `gpu_questions behind`).
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
  std::array<CUkernel, 4> copies_{};  ///< copies_[n] copies elements of 2^n bytes.
  std::uint32_t processors_ = 1;
  mutable std::atomic<std::uint32_t> reserved_{0};
};

}  // namespace xylem::execution::cuda
