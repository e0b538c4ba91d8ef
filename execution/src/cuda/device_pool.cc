// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_pool.h"

#include "cuda/gates.h"

#include <algorithm>
#include <bit>

namespace xylem::execution::cuda {

DevicePool::DevicePool(const Driver& driver, CUcontext context)
    : driver_(driver), context_(context) {
  add_region(kFirstRegion);
}

DevicePool::~DevicePool() {
  const CurrentContext current(driver_, context_);
  for (const Region& region : regions_) driver_.cuMemFree(region.begin);
}

/// False if the device has not so much memory, or if the pool has enough.
bool DevicePool::add_region(std::uint64_t bytes) {
  Region region{0, bytes};
  if (taken_ + bytes > kMostBytes || driver_.cuMemAlloc(&region.begin, bytes) != CUDA_SUCCESS) {
    return false;
  }
  taken_ += bytes;
  regions_.push_back(region);
  return true;
}

std::byte* DevicePool::take(std::uint64_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  const int size_class = std::max(static_cast<int>(std::bit_width(bytes - 1)) - kSmallest, 0);
  if (size_class >= kClasses) return nullptr;
  const Lock lock(mutex_);
  auto& kept = free_[static_cast<std::size_t>(size_class)];
  if (!kept.empty()) {
    std::byte* const memory = kept.back();
    kept.pop_back();
    return memory;
  }
  const std::uint64_t block = std::uint64_t{1} << (size_class + kSmallest);
  const bool has_room = !regions_.empty() && block <= regions_.back().bytes - regions_.back().used;
  if (!has_room) {
    if (Gates::are_streams_waiting()) return nullptr;
    const CurrentContext current(driver_, context_);
    if (current.result() != CUDA_SUCCESS || !add_region(std::max(block, kFirstRegion))) {
      return nullptr;
    }
  }
  Region& region = regions_.back();
  const CUdeviceptr begin = region.begin + region.used;
  auto* const memory = reinterpret_cast<std::byte*>(begin);  // NOLINT(performance-no-int-to-ptr)
  region.used += block;
  blocks_.emplace(memory, size_class);
  return memory;
}

void DevicePool::give_back(std::byte* memory) noexcept {
  const Lock lock(mutex_);
  free_[static_cast<std::size_t>(blocks_.at(memory))].push_back(memory);
}

}  // namespace xylem::execution::cuda
