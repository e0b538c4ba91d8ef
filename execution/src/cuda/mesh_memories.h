// SPDX-License-Identifier: Apache-2.0
//
// MeshMemories: a pool of the memory that meshes use on one device.
#pragma once

#include "cuda/driver.h"
#include "cuda/shared_memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"

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
    CUdeviceptr flags = 0, scratch = 0;
    std::uint64_t* done = nullptr;  ///< In pinned memory: number of the last completed call.
    CUdeviceptr done_on_device = 0;
  };

  /// Memory that peers can access, for a buffer that they cannot access.
  struct More {
    CUdeviceptr start = 0;
    std::uint64_t bytes = 0;
  };

  MeshMemories(const Driver& driver, std::uint64_t scratch_bytes)
      : driver_(driver), scratch_bytes_(scratch_bytes) {}
  MeshMemories(const MeshMemories&) = delete;
  MeshMemories& operator=(const MeshMemories&) = delete;
  ~MeshMemories() = default;

  /// Size of Memory::scratch.
  std::uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  /// Returns the memory for a mesh, with undefined contents. The context must be current.
  Result<Memory> take();
  /// Returns memory to the pool. Precondition: nobody uses it, but peers may still set flags.
  void give_back(const Memory& memory) noexcept;
  /// Returns at least `bytes` of further memory, with undefined contents. The context must be
  /// current.
  Result<More> take_more(std::uint64_t bytes);
  /// Returns memory to the pool. Precondition: nobody uses it.
  void give_back(const More& memory) noexcept;
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
  const std::uint64_t scratch_bytes_;
  Mutex mutex_;
  std::vector<Memory> free_
      XYLEM_LOCKING(guarded_by(mutex_));  ///< Flags are not reused, other parts may be missing.
  std::vector<More> free_more_ XYLEM_LOCKING(guarded_by(mutex_));
  std::vector<std::unique_ptr<SharedMemory>> kept_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::execution::cuda
