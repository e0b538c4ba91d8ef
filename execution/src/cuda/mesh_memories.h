// SPDX-License-Identifier: Apache-2.0
//
// MeshMemories: the memory that meshes have on one device.
#pragma once

#include "cuda/driver.h"
#include "cuda/shared_memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::execution::cuda {

/// The memory of the meshes of one device. It is used again, and given back to the driver only by
/// free(): that waits for the device, where a stream may wait for a call of another communicator.
/// Only flags are neither freed nor used again, since a peer that makes a call although this rank
/// has destroyed the communicator still sets them. All threads may call it.
class MeshMemories {
 public:
  static constexpr std::uint64_t kFlagBytes = 4096;

  struct Memory {
    CUdeviceptr flags = 0, scratch = 0;
    std::uint64_t* done = nullptr;  ///< Pinned: how many calls the streams have done.
    CUdeviceptr done_on_device = 0;
  };

  struct More {
    CUdeviceptr start = 0;
    std::uint64_t bytes = 0;
  };

  MeshMemories(const Driver& driver, std::uint64_t scratch_bytes)
      : driver_(driver), scratch_bytes_(scratch_bytes) {}
  MeshMemories(const MeshMemories&) = delete;
  MeshMemories& operator=(const MeshMemories&) = delete;
  ~MeshMemories() = default;

  /// Of each memory.
  std::uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  /// The contents are undefined. The context must be current.
  Result<Memory> take();
  /// Nobody uses the memory any more, except that peers may set flags.
  void give_back(const Memory& memory) noexcept;
  /// Further memory, at least this much. The contents are undefined. The context must be current.
  Result<More> take_more(std::uint64_t bytes);
  /// Nobody uses the memory any more.
  void give_back(const More& memory) noexcept;
  /// Keeps what a mesh has opened until the end, since to close it may wait for the device, too.
  void keep(std::unique_ptr<SharedMemory> opened);
  /// Gives everything back to the driver, except for flags. No mesh uses it any more. The context
  /// must be current.
  void free(const NoStreamWaits& proof) noexcept;

 private:
  Memory take_free() noexcept;
  Status complete(Memory& memory) const;

  const Driver& driver_;
  const std::uint64_t scratch_bytes_;
  Mutex mutex_;
  std::vector<Memory> free_
      XYLEM_LOCKING(guarded_by(mutex_));  ///< Without flags; may be incomplete.
  std::vector<More> free_more_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<std::unique_ptr<SharedMemory>> kept_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
