// SPDX-License-Identifier: Apache-2.0
#include "cuda/host_scratch.h"

#include <sys/mman.h>

namespace xylem::execution::cuda {

std::byte* PageableSource::allocate(const Driver& /*driver*/, std::uint64_t bytes) noexcept {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void PageableSource::free(const BlockingDriver& /*driver*/,
                          std::byte* memory,
                          std::uint64_t bytes) noexcept {
  ::munmap(memory, bytes);
}

CUresult HostScratch::pin(std::byte* memory) noexcept {
  {
    const Lock lock(mutex_);
    if (const auto known = pinned_.find(memory); known != pinned_.end()) return known->second;
  }
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS) return current.result();
  CUresult result =
      driver_.cuMemHostRegister(memory, blocks_.size_of(memory), CU_MEMHOSTREGISTER_PORTABLE);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr on_device = 0;
  result = driver_.cuMemHostGetDevicePointer(&on_device, memory, 0);
  if (result == CUDA_SUCCESS && on_device != address(memory)) result = CUDA_ERROR_NOT_SUPPORTED;
  const Lock lock(mutex_);
  pinned_.emplace(memory, result);
  return result;
}

void HostScratch::free(const NoStreamWaits& proof) noexcept {
  const Lock lock(mutex_);
  for (const auto& [memory, result] : pinned_) {
    driver_.blocking(proof).cuMemHostUnregister(memory);
  }
  pinned_.clear();
  blocks_.free(proof);
}

}  // namespace xylem::execution::cuda
