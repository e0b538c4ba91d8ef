// SPDX-License-Identifier: Apache-2.0
//
// HostScratch: scratch on the host that the CPU, the transports and one device access. Most of it
// is needed only if a message cannot stay in device memory. So a block begins as pageable memory,
// which occupies nothing until it is written, and is pinned before the device first accesses it.
#pragma once

#include "cuda/block_pool.h"
#include "cuda/driver.h"
#include "cuda/gates.h"
#include "xylem/base/mutex.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>

namespace xylem::execution::cuda {

/// Maps pageable memory for a BlockPool. Each block is a mapping of its own (kRegion is 0).
struct PageableSource {
  static constexpr std::uint64_t kRegion = 0;
  static constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();
  static bool may_grow() noexcept { return true; }
  static std::byte* allocate(const Driver& driver, std::uint64_t bytes) noexcept;
  static void free(const BlockingDriver& driver, std::byte* memory, std::uint64_t bytes) noexcept;
};

/// Any thread may call take(), give_back() and pin().
class HostScratch {
 public:
  HostScratch(const Driver& driver, CUcontext context)
      : driver_(driver), context_(context), blocks_(driver, context) {}
  HostScratch(const HostScratch&) = delete;
  HostScratch& operator=(const HostScratch&) = delete;
  ~HostScratch() = default;
  /// Frees all memory. Preconditions: no block is in use, and the context is current.
  void free(const NoStreamWaits& proof) noexcept;

  /// See BlockPool::take().
  std::byte* take(std::uint64_t bytes) noexcept { return blocks_.take(bytes); }
  void give_back(std::byte* memory) noexcept { blocks_.give_back(memory); }
  /// Makes a block that take() has returned accessible to the device. The block stays pinned until
  /// free(). Only the owner of the block may call it. Fails with CUDA_ERROR_NOT_SUPPORTED if the
  /// device would need another address.
  CUresult pin(std::byte* memory) noexcept;

 private:
  const Driver& driver_;
  const CUcontext context_;
  BlockPool<PageableSource> blocks_;
  Mutex mutex_;  ///< Not held during calls of the driver, which may take long.
  /// The registered blocks, and for each whether the device can access it.
  std::unordered_map<std::byte*, CUresult> pinned_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
