// SPDX-License-Identifier: Apache-2.0
//
// MeshMemories: a pool of the memory that meshes use on one device.
#pragma once

#include "cuda/driver.h"
#include "cuda/shared_memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace xylem::execution::cuda {

/// The memory of the meshes of one device. It is reused, and only free() frees it, since freeing
/// blocks until the device has completed its work, and a stream of the device may be waiting for a
/// call of another communicator. Flags are neither freed nor reused: if a peer makes a call after
/// this rank has destroyed the communicator, the peer still sets them. Any thread may call it.
class MeshMemories {
 public:
  static constexpr std::uint64_t kFlagBytes = 4096;

  /// The memory of one mesh.
  struct Memory {
    CUdeviceptr flags = 0, staging = 0;
    /// Two words in pinned memory: the number of the last completed call, and that of
    /// ExchangeArguments::mismatch.
    std::uint64_t* done = nullptr;
    CUdeviceptr done_on_device = 0;
  };

  MeshMemories(const Driver& driver, std::uint64_t staging_bytes)
      : driver_(driver), staging_bytes_(staging_bytes) {}
  MeshMemories(const MeshMemories&) = delete;
  MeshMemories& operator=(const MeshMemories&) = delete;
  ~MeshMemories() = default;

  /// Size of Memory::staging.
  std::uint64_t staging_bytes() const noexcept { return staging_bytes_; }
  /// Returns the memory for a mesh, with undefined contents. The context must be current.
  Result<Memory> take();
  /// Returns memory to the pool. Precondition: nobody uses it, but peers may still set flags.
  void give_back(const Memory& memory) noexcept;
  /// Counts bytes that were copied to or from the staging memory of a mesh.
  void count_copied(std::uint64_t bytes) noexcept {
    copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  std::uint64_t copied_bytes() const noexcept {
    return copied_bytes_.load(std::memory_order_relaxed);
  }
  /// Keeps the memory of peers that a mesh has opened until free(), since closing it may also block
  /// until the device has completed its work.
  void keep(std::unique_ptr<SharedMemory> opened);
  /// Frees all memory except for flags, and closes the memory of peers. Preconditions: no mesh uses
  /// the memory, and the context is current.
  void free(const NoStreamWaits& proof) noexcept;

 private:
  Memory take_free() noexcept;
  Status complete(Memory& memory) const;

  const Driver& driver_;
  const std::uint64_t staging_bytes_;
  std::atomic<std::uint64_t> copied_bytes_{0};
  Mutex mutex_;
  std::vector<Memory> free_
      XYLEM_LOCKING(guarded_by(mutex_));  ///< Flags are not reused, other parts may be missing.
  std::vector<std::unique_ptr<SharedMemory>> kept_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
