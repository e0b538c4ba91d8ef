// SPDX-License-Identifier: Apache-2.0
//
// BlockPool: memory for scratch, in blocks that are reused.
#pragma once

#include "cuda/driver.h"
#include "cuda/gates.h"
#include "xylem/base/mutex.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace xylem::execution::cuda {

/// Allocates device memory for a BlockPool. The pool grows only while no stream waits for a call,
/// since an allocation may block until the device has completed its work.
struct DeviceSource {
  static constexpr std::uint64_t kRegion = 32 << 20;
  static constexpr std::uint64_t kMostBytes = 1 << 30;
  static bool may_grow() noexcept { return !Gates::are_streams_waiting(); }
  static std::byte* allocate(const Driver& driver, std::uint64_t bytes) noexcept {
    CUdeviceptr memory = 0;
    return driver.cuMemAlloc(&memory, bytes) == CUDA_SUCCESS ? pointer(memory) : nullptr;
  }
  static void free(const BlockingDriver& driver,
                   std::byte* memory,
                   std::uint64_t /*bytes*/) noexcept {
    driver.cuMemFree(address(memory));
  }
};

/// Blocks whose sizes are powers of two. They are cut from regions of at least Source::kRegion
/// bytes. All regions together have at most Source::kMostBytes. The pool keeps its regions until
/// free(), since freeing memory blocks until the device has completed its work, and a stream of the
/// device may be waiting for the call whose thread would free the memory. Any thread may call
/// take(), give_back() and size_of().
template <class Source>
class BlockPool {
 public:
  /// Allocates the first region if kRegion is not 0. Without memory the pool begins empty. The
  /// context must be current.
  BlockPool(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {
    if (Source::kRegion > 0 && reserve(Source::kRegion)) {
      add(allocate(Source::kRegion), Source::kRegion);
    }
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() = default;
  /// Frees all regions. Preconditions: no block is in use, and the context is current.
  void free(const NoStreamWaits& proof) noexcept {
    const Lock lock(mutex_);
    for (const auto& [region, bytes] : regions_) {
      Source::free(driver_.blocking(proof), region, bytes);
    }
  }

  /// Returns a block of at least `bytes`, aligned to 256 bytes. Null if `bytes` is 0, if there is
  /// no memory, or if the pool must not grow at present.
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
  /// The size of a block that take() has returned.
  std::uint64_t size_of(std::byte* memory) const noexcept {
    const Lock lock(mutex_);
    return block_bytes(blocks_.at(memory));
  }

 private:
  static constexpr int kSmallest = 16;  ///< The smallest block has 2^16 bytes.
  static constexpr int kClasses = 48;

  static constexpr std::uint64_t block_bytes(int size_class) noexcept {
    return std::uint64_t{1} << (size_class + kSmallest);
  }
  /// Returns a free block of this size class, or cuts one from the rest of the last region. Null if
  /// there is neither.
  std::byte* take_block(int size_class) XYLEM_LOCKING(requires_capability(mutex_)) {
    auto& kept = free_[static_cast<std::size_t>(size_class)];
    if (!kept.empty()) {
      std::byte* const memory = kept.back();
      kept.pop_back();
      return memory;
    }
    const std::uint64_t bytes = block_bytes(size_class);
    if (result_ < bytes) return nullptr;
    std::byte* const memory = next_;
    next_ += bytes;
    result_ -= bytes;
    blocks_.emplace(memory, size_class);
    return memory;
  }
  /// Counts the bytes of a new region. False if the pool would exceed kMostBytes.
  bool reserve(std::uint64_t bytes) XYLEM_LOCKING(requires_capability(mutex_)) {
    if (bytes > Source::kMostBytes - taken_) return false;
    taken_ += bytes;
    return true;
  }
  /// Allocates a region, for which the driver may wait for the device. Null if there is no memory.
  std::byte* allocate(std::uint64_t bytes) const XYLEM_LOCKING(locks_excluded(mutex_)) {
    const CurrentContext current(driver_, context_);
    return current.result() == CUDA_SUCCESS ? Source::allocate(driver_, bytes) : nullptr;
  }
  /// Adds a region for which reserve() has returned true; the next blocks are cut from it. If
  /// `region` is null, its allocation has failed, and reserve() is undone.
  void add(std::byte* region, std::uint64_t bytes) XYLEM_LOCKING(requires_capability(mutex_)) {
    if (region == nullptr) {
      taken_ -= bytes;
      return;
    }
    regions_.emplace_back(region, bytes);
    if (bytes <= result_) return;  // Another thread has added a region of this size.
    next_ = region;
    result_ = bytes;
  }

  const Driver& driver_;
  const CUcontext context_;
  mutable Mutex mutex_;
  std::vector<std::pair<std::byte*, std::uint64_t>> regions_ XYLEM_LOCKING(guarded_by(mutex_));
  std::byte* next_ XYLEM_LOCKING(guarded_by(mutex_)) = nullptr;  ///< Rest of the last region.
  std::uint64_t result_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;   ///< Size of this rest.
  std::uint64_t taken_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;    ///< Bytes of all regions.
  std::map<std::byte*, int> blocks_ XYLEM_LOCKING(guarded_by(mutex_));  ///< Block to size class.
  std::array<std::vector<std::byte*>, kClasses> free_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
