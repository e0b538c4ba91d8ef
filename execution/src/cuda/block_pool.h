// SPDX-License-Identifier: Apache-2.0
//
// BlockPool: memory for scratch, in blocks that are used again.
#pragma once

#include "cuda/driver.h"
#include "cuda/gates.h"
#include "xylem/base/mutex.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace xylem::execution::cuda {

/// Memory of the device. More is taken only while no stream waits for a call, since the driver may
/// wait for the device meanwhile.
struct DeviceSource {
  static constexpr std::uint64_t kRegion = 32 << 20;
  static constexpr std::uint64_t kMostBytes = 1 << 30;
  static bool may_grow() noexcept { return !Gates::are_streams_waiting(); }
  static std::byte* allocate(const Driver& driver, std::uint64_t bytes) noexcept {
    CUdeviceptr memory = 0;
    return driver.cuMemAlloc(&memory, bytes) == CUDA_SUCCESS ? pointer(memory) : nullptr;
  }
  static void free(const BlockingDriver& driver, std::byte* memory) noexcept {
    driver.cuMemFree(address(memory));
  }
};

/// Pinned memory of the host. Each block is taken by itself.
struct PinnedSource {
  static constexpr std::uint64_t kRegion = 0;
  static constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();
  static bool may_grow() noexcept { return true; }
  static std::byte* allocate(const Driver& driver, std::uint64_t bytes) noexcept {
    void* memory = nullptr;
    const CUresult result = driver.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
    return result == CUDA_SUCCESS ? static_cast<std::byte*>(memory) : nullptr;
  }
  static void free(const BlockingDriver& driver, std::byte* memory) noexcept {
    driver.cuMemFreeHost(memory);
  }
};

/// Blocks whose sizes are powers of two. They are cut from regions of at least Source::kRegion
/// bytes, and of at most kMostBytes together, which the pool keeps until free(): to free memory
/// waits for the device, where a stream may wait for the call that wants to free it. All threads
/// may call it.
template <class Source>
class BlockPool {
 public:
  /// Takes the first region, unless kRegion is 0 or there is no memory. The context must be
  /// current.
  BlockPool(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {
    if (Source::kRegion > 0 && reserve(Source::kRegion)) {
      add(allocate(Source::kRegion), Source::kRegion);
    }
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() = default;
  /// No block is in use any more. The context must be current.
  void free(const NoStreamWaits& proof) noexcept {
    const Lock lock(mutex_);
    for (std::byte* const region : regions_) Source::free(driver_.blocking(proof), region);
  }

  /// At least `bytes` of memory, aligned to 256 bytes. Null if there is none, or none now.
  std::byte* take(std::uint64_t bytes) noexcept {
    if (bytes == 0) return nullptr;
    const int size_class = std::max(static_cast<int>(std::bit_width(bytes - 1)) - kSmallest, 0);
    if (size_class >= kClasses) return nullptr;
    const std::uint64_t region = std::max(block_bytes(size_class), Source::kRegion);
    {
      const Lock lock(mutex_);
      std::byte* const memory = take_block(size_class);
      if (memory != nullptr || !Source::may_grow() || !reserve(region)) return memory;
    }
    std::byte* const more = allocate(region);
    const Lock lock(mutex_);
    add(more, region);
    return take_block(size_class);
  }
  void give_back(std::byte* memory) noexcept {
    const Lock lock(mutex_);
    free_[static_cast<std::size_t>(blocks_.at(memory))].push_back(memory);
  }

 private:
  static constexpr int kSmallest = 16;  ///< The smallest block has 2^16 bytes.
  static constexpr int kClasses = 48;

  static constexpr std::uint64_t block_bytes(int size_class) noexcept {
    return std::uint64_t{1} << (size_class + kSmallest);
  }
  /// A block that was used before, or the beginning of the rest of the last region. Null if there
  /// is none.
  std::byte* take_block(int size_class) XYLEM_LOCKING(requires_capability(mutex_)) {
    auto& kept = free_[static_cast<std::size_t>(size_class)];
    if (!kept.empty()) {
      std::byte* const memory = kept.back();
      kept.pop_back();
      return memory;
    }
    const std::uint64_t bytes = block_bytes(size_class);
    if (room_ < bytes) return nullptr;
    std::byte* const memory = next_;
    next_ += bytes;
    room_ -= bytes;
    blocks_.emplace(memory, size_class);
    return memory;
  }
  /// Counts a region. False if the pool has enough.
  bool reserve(std::uint64_t bytes) XYLEM_LOCKING(requires_capability(mutex_)) {
    if (bytes > Source::kMostBytes - taken_) return false;
    taken_ += bytes;
    return true;
  }
  /// Takes a region from the driver, which may wait for the device. Null if there is no memory.
  std::byte* allocate(std::uint64_t bytes) const XYLEM_LOCKING(locks_excluded(mutex_)) {
    const CurrentContext current(driver_, context_);
    return current.result() == CUDA_SUCCESS ? Source::allocate(driver_, bytes) : nullptr;
  }
  /// Adds a region that was reserved, of which the next block is cut. Null: it could not be taken.
  void add(std::byte* region, std::uint64_t bytes) XYLEM_LOCKING(requires_capability(mutex_)) {
    if (region == nullptr) {
      taken_ -= bytes;
      return;
    }
    regions_.push_back(region);
    if (bytes <= room_) return;  // Another thread has added one that has as much room.
    next_ = region;
    room_ = bytes;
  }

  const Driver& driver_;
  const CUcontext context_;
  Mutex mutex_;
  std::vector<std::byte*> regions_ XYLEM_LOCKING(guarded_by(mutex_));
  std::byte* next_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;  ///< The rest of the last region,
  std::uint64_t room_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;     ///< and its size.
  std::uint64_t taken_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;    ///< Bytes of all regions.
  std::map<std::byte*, int> blocks_ XYLEM_LOCKING(guarded_by(mutex_));  ///< Each with its class.
  std::array<std::vector<std::byte*>, kClasses> free_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
