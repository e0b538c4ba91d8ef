// SPDX-License-Identifier: Apache-2.0
#include "cuda/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace xylem::execution::cuda {

PinnedPool::~PinnedPool() {
  const CurrentContext current(driver_, context_);
  for (const auto& [memory, size_class] : blocks_) driver_.cuMemFreeHost(memory);
}

std::byte* PinnedPool::take(std::uint64_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  const int size_class = std::max(static_cast<int>(std::bit_width(bytes - 1)) - kSmallest, 0);
  if (size_class >= kClasses) return nullptr;
  {
    const Lock lock(mutex_);
    auto& kept = free_[static_cast<std::size_t>(size_class)];
    if (!kept.empty()) {
      std::byte* const memory = kept.back();
      kept.pop_back();
      return memory;
    }
  }
  // Without the lock, since the driver may wait for the device.
  const CurrentContext current(driver_, context_);
  void* memory = nullptr;
  const CUresult result = driver_.cuMemHostAlloc(
      &memory, std::size_t{1} << (size_class + kSmallest), CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return nullptr;
  const Lock lock(mutex_);
  blocks_.emplace(static_cast<std::byte*>(memory), size_class);
  return static_cast<std::byte*>(memory);
}

void PinnedPool::give_back(std::byte* memory) noexcept {
  const Lock lock(mutex_);
  free_[static_cast<std::size_t>(blocks_.at(memory))].push_back(memory);
}

}  // namespace xylem::execution::cuda
