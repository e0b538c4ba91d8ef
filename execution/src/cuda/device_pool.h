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

/// Memory of a device for scratch. It is taken from the driver in regions, the first one when the
/// device is made. Regions are kept until the pool ends, since to free device memory waits for the
/// device, where a stream may wait for a call. More is taken only while no stream waits, since that
/// may wait for the device, too. All threads may call it.
class DevicePool {
 public:
  /// Takes the first region, if the device has memory for it. The context must be current.
  DevicePool(const Driver& driver, CUcontext context);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool();

  /// At least `bytes` of memory, aligned to 256 bytes. Null if there is none, or none now.
  std::byte* take(std::uint64_t bytes) noexcept;
  void give_back(std::byte* memory) noexcept;

 private:
  static constexpr int kSmallest = 16;  ///< The smallest block has 2^16 bytes.
  static constexpr int kClasses = 15;   ///< Block sizes are powers of two, up to 1 GiB.
  static constexpr std::uint64_t kFirstRegion = 32 << 20;
  static constexpr std::uint64_t kMostBytes = 1 << 30;  ///< In all regions together.

  struct Region {
    CUdeviceptr begin = 0;
    std::uint64_t bytes = 0, used = 0;
  };

  bool add_region(std::uint64_t bytes) XYLEM_LOCKING(requires_capability(mutex_));

  const Driver& driver_;
  const CUcontext context_;
  Mutex mutex_;
  std::vector<Region> regions_ XYLEM_LOCKING(guarded_by(mutex_));  ///< The last one has room left.
  std::uint64_t taken_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;      ///< Bytes of all regions.
  std::map<std::byte*, int> blocks_ XYLEM_LOCKING(guarded_by(mutex_));  ///< Each with its class.
  std::array<std::vector<std::byte*>, kClasses> free_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
