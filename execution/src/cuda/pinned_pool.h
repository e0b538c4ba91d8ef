// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace xylem::execution::cuda {

/// Pinned memory of the host for scratch. Blocks are kept until the pool ends, and used again: to
/// free pinned memory waits for the device, where a stream may wait for the call that wants to free
/// it. All threads may call it.
class PinnedPool {
 public:
  PinnedPool(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  /// At least `bytes` of memory, aligned to cache lines. Null if there is none.
  std::byte* take(std::uint64_t bytes) noexcept;
  void give_back(std::byte* memory) noexcept;

 private:
  static constexpr int kSmallest = 16;  ///< The smallest block has 2^16 bytes.
  static constexpr int kClasses = 48;   ///< Block sizes are powers of two.

  const Driver& driver_;
  const CUcontext context_;
  Mutex mutex_;
  std::map<std::byte*, int> blocks_ XYLEM_LOCKING(guarded_by(mutex_));  ///< Each with its class.
  std::array<std::vector<std::byte*>, kClasses> free_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
