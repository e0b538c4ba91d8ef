// SPDX-License-Identifier: Apache-2.0
#include "cuda/loaded_kernels.h"

#include "cuda/device_kernels.h"

#include <algorithm>
#include <utility>

namespace xylem::execution::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;        ///< Threads of a block.
constexpr std::uint64_t kBytesPerThread = 64;  ///< What one thread should have to do, at least.
constexpr std::uint32_t kBlocksPerProcessor = 8;

}  // namespace

Result<std::shared_ptr<const LoadedKernels>> LoadedKernels::load(
    std::shared_ptr<const Driver> driver, CUdevice device, std::span<const std::string> names) {
  const std::shared_ptr<LoadedKernels> made(new LoadedKernels(std::move(driver)));
  XYLEM_TRY(made->set_up(device, names));
  return std::shared_ptr<const LoadedKernels>(made);
}

Status LoadedKernels::set_up(CUdevice device, std::span<const std::string> names) {
  int processors = 0;
  XYLEM_TRY(driver_->check(
      driver_->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
      "cuDeviceGetAttribute"));
  most_blocks_ = static_cast<std::uint32_t>(processors) * kBlocksPerProcessor;
  XYLEM_TRY(driver_->check(driver_->cuLibraryLoadData(&library_, device_kernels().data(), nullptr,
                                                      nullptr, 0, nullptr, nullptr, 0),
                           "cuLibraryLoadData"));
  for (const std::string& name : names) {
    CUkernel kernel = nullptr;
    if (!name.empty()) {
      XYLEM_TRY(driver_->check(driver_->cuLibraryGetKernel(&kernel, library_, name.c_str()),
                               "cuLibraryGetKernel"));
      CUfunction function = nullptr;
      XYLEM_TRY(
          driver_->check(driver_->cuKernelGetFunction(&function, kernel), "cuKernelGetFunction"));
    }
    kernels_.push_back(kernel);
  }
  return {};
}

LoadedKernels::~LoadedKernels() {
  if (library_ != nullptr) driver_->cuLibraryUnload(library_);
}

CUresult LoadedKernels::launch_any(CUstream stream,
                                   KernelId kernel,
                                   std::uint64_t bytes,
                                   void* arguments) const noexcept {
  const auto function = reinterpret_cast<CUfunction>(kernels_[kernel]);
  const std::uint64_t threads = bytes / kBytesPerThread;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::uint64_t>((threads + kThreads - 1) / kThreads, 1, most_blocks_));
  void* parameters[] = {arguments};
  return driver_->cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters,
                                 nullptr);
}

}  // namespace xylem::execution::cuda
