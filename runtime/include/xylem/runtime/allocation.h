// SPDX-License-Identifier: Apache-2.0
//
// Memory for buffers: host memory that the other ranks of this host can read in place, or memory of
// a GPU.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/memory.h"
#include "xylem/base/status.h"

#include <cstdint>

namespace xylem {

class Allocation;
/// Allocates zeroed host memory, with all of its pages. If the machine has too little memory, the
/// call fails with `exhausted`, so no later access raises SIGBUS. (The memory limit of a control
/// group is not checked: the kernel may kill a process that exceeds it.) Each allocation keeps a
/// file descriptor open. Fails with `invalid_argument` for 0 bytes, and with `unsupported` where
/// the system denies anonymous shared memory. The call needs no Runtime, and any thread may make
/// it. Fails with `invalid_argument` in a child that was forked while its parent had a Runtime.
XYLEM_API Result<Allocation> allocate(std::uint64_t bytes);
/// Allocates memory of a GPU: `where` is {MemoryKind::cuda, device}. Its contents are undefined.
/// The memory is made by cuMemAlloc in the device's primary context, so the CUDA runtime can use
/// it, too. The context is retained until the memory is freed. With {MemoryKind::host} the call
/// does the same as allocate(bytes). Fails with `exhausted` if the device has too little memory,
/// and with `unsupported` if there is no such device, no driver, or no support for CUDA in this
/// build; the message says which. The call needs no Runtime, and any thread may make it.
XYLEM_API Result<Allocation> allocate(std::uint64_t bytes, const Memory& where);
/// Frees memory that Allocation::release() returned. Fails with `invalid_argument` for any other
/// memory. Any thread may call this function. For memory of a GPU it blocks, as the destructor of
/// Allocation does.
XYLEM_API Status deallocate(void* memory);

/// Memory for buffers. Buffers of operations may lie in any memory. A large message that is sent
/// from an Allocation to a rank of this host is not copied into shared memory: the receiver reads
/// the Allocation itself, and then the send ends. Small messages are copied into shared memory
/// first. So are messages from other memory, except where the receiver copies them directly out of
/// the sender's process (XYLEM_PULL_FROM).
///
/// The destructor frees the memory. Before, all operations on the memory must have ended. fork()
/// does not copy the host memory of an Allocation: parent and child share it, also after one of
/// them has freed it.
///
/// Like cudaFree(), freeing memory of a GPU blocks until the device has completed all enqueued
/// work, including the work of streams that wait for calls (Communicator::on()). If such a call
/// cannot end before the thread that frees the memory continues, the process deadlocks. So free GPU
/// memory only while no stream of the device waits for a call that needs this thread.
class XYLEM_API Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  /// Page-aligned, on a GPU aligned to 256 bytes; null for an empty Allocation.
  void* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// The kind of the memory and its device, as Buffer::memory expects them.
  const Memory& memory() const noexcept { return memory_; }
  /// Returns data() and passes ownership of the memory to the caller, who must deallocate() it. The
  /// Allocation is empty afterwards.
  void* release() noexcept;

 private:
  friend Result<Allocation> allocate(std::uint64_t bytes, const Memory& where);
  Allocation(void* data, std::uint64_t bytes, const Memory& where) noexcept
      : data_(data), bytes_(bytes), memory_(where) {}

  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  Memory memory_;
};

}  // namespace xylem
