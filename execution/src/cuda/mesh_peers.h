// SPDX-License-Identifier: Apache-2.0
//
// MeshPeers: the memory of the ranks of a mesh, as the device of one rank reaches it. Each rank has
// memory on its device, which its peers open:
//
//   flags:    stop word │ flags, one for each channel and peer │ nonce │ ended blocks │ peer calls
//   staging:  a slice for each peer
//
// A flag is 1 if its peer has signalled. In a call, ranks read and write each other's buffers. Each
// rank writes the addresses of its buffers into the peer calls of each peer, where the peer's
// kernels read them. The addresses are those at which the peer's process accesses the buffers.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"
#include "cuda/mesh_memories.h"
#include "cuda/shared_memory.h"
#include "cuda/stream_batch.h"
#include "xylem/execution/mesh.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace xylem::execution::cuda {

/// The context must be current in set_up() and open(). Only one thread at a time may call these
/// two.
class MeshPeers {
 public:
  MeshPeers(const Driver& driver, std::uint32_t rank) noexcept : driver_(driver), rank_(rank) {}

  /// Clears the flags in this rank's memory, and describes the memory for peers by `shared`. Blocks
  /// until `stream` has completed its work.
  Status set_up(const MeshMemories::Memory& own,
                std::uint64_t staging_bytes,
                CUdevice device,
                CUstream stream,
                std::unique_ptr<SharedMemory> shared);
  /// Describes this rank to its peers.
  const MeshMember& member() const noexcept { return member_; }
  /// Opens the memory of all ranks (Mesh::join()). Blocks until `stream` has completed its work.
  Result<MeshView> open(std::span<const MeshMember> members, CUstream stream);
  /// See Mesh::start().
  void start(std::span<const MeshView> views) noexcept;
  SharedMemory& shared() noexcept { return *shared_; }
  /// Returns the object that holds the opened memory of peers, so that the caller can close it.
  /// Call no other function afterwards.
  std::unique_ptr<SharedMemory> release() noexcept { return std::move(shared_); }

  /// The number of ranks; 0 before open().
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(peers_.size()); }
  /// For each rank, whether it is in another process.
  std::vector<bool> are_elsewhere() const;
  /// Whether all ranks are in this process and on one device. Then each can access all memory of
  /// the others, and memory operations of streams can write it.
  bool are_together() const noexcept { return are_together_; }
  /// Whether kernels of this rank may wait for peers. Not if a peer, or another process by MPS, may
  /// need the same device, nor if the driver ends kernels that run for long.
  bool may_wait_in_kernels() const noexcept { return may_wait_in_kernels_; }
  /// Whether streams must flush writes of other devices when they have waited for a flag.
  Flush flush() const noexcept { return flush_; }

  /// The slice for rank `peer` in this rank's staging memory.
  CUdeviceptr staging_for(std::uint32_t peer, std::uint64_t slice_bytes) const noexcept {
    return own_.staging + peer * slice_bytes;
  }
  /// The address at which that rank accesses this slice.
  CUdeviceptr staging_at(std::uint32_t peer, std::uint64_t slice_bytes) const noexcept {
    return staging_at_[peer] + peer * slice_bytes;
  }
  /// The stop word, flags and counter of this rank.
  StreamBatch::Words words() const noexcept;
  /// The flag of `peer` that this rank sets.
  std::uint32_t* flag_at(std::uint32_t peer, std::uint32_t channel) const noexcept;
  /// The peer calls in the memory of `rank`: element r is the call that rank r has published.
  PeerCall* calls_written_to(std::uint32_t rank) const noexcept;

 private:
  struct Peer {
    MeshMember member;
    CUdeviceptr flags = 0, staging = 0;
  };

  Status open(const MeshMember& member, Peer& peer);
  Status check_nonce(const Peer& peer, CUstream stream) const;
  bool has(CUdevice_attribute attribute) const noexcept;

  const Driver& driver_;
  const std::uint32_t rank_;
  CUdevice device_ = 0;
  /// Shares and opens the memory of meshes. This is not the object by which CudaCompute shares
  /// messages, since only the token holder may use that object.
  std::unique_ptr<SharedMemory> shared_;
  MeshMemories::Memory own_;
  MeshMember member_;
  std::vector<Peer> peers_;  ///< All ranks, after open().
  MeshView staging_at_{};    ///< The addresses at which each rank accesses own_.staging.
  bool are_together_ = false;
  bool may_wait_in_kernels_ = false;
  Flush flush_ = Flush::no;
};

}  // namespace xylem::execution::cuda
