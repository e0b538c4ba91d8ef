// SPDX-License-Identifier: Apache-2.0
//
// The memory that the driver manages.
//
//   device memory   address that callers see:  [ no access             ]
//                   alias:                     [ read, write           ][ guard page ]
//   host memory     address == alias, which the host can access
//
// The alias of device memory maps a memfd, which another process can open. When device memory is
// freed, its address range stays reserved, so that a later access by the host still faults. The
// next allocation of the same size reuses the range.
//
// A mapping of physical memory (cuMemMap) is also an allocation. Its address range belongs to a
// reservation (reservations.h), and its file to the physical memory.
#pragma once

#include "fakes/cuda_driver/cuda_api.h"
#include "fakes/cuda_driver/physical.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace xylem::fake_cuda {

enum class MemoryKind { device, pinned, registered, managed, opened, mapped };

/// Identifies memory of another process. `inode` detects that the file descriptor was reused.
struct IpcKey {
  int pid = 0;
  int file = -1;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  int device = 0;
  bool operator==(const IpcKey&) const = default;
};

struct Pool;

struct Allocation {
  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  /// Unmaps the alias. Commands hold references to the allocations that they use, so this may
  /// happen after the allocation was freed.
  ~Allocation();

  bool is_on_host() const noexcept {
    return kind == MemoryKind::pinned || kind == MemoryKind::registered;
  }
  bool is_ipc_capable() const noexcept { return kind == MemoryKind::device && pool == nullptr; }
  bool is_touchable() const noexcept { return is_on_host() || kind == MemoryKind::managed; }
  bool contains(std::uintptr_t address) const noexcept {
    return address >= start && address - start < bytes;
  }
  std::byte* view(const void* address) const noexcept {
    return alias + (reinterpret_cast<std::uintptr_t>(address) - start);
  }

  MemoryKind kind = MemoryKind::device;
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
  std::size_t mapped_bytes = 0;  ///< A whole number of pages.
  std::byte* alias = nullptr;
  int file = -1;
  int device = 0;               ///< The device of the memory, or that allocated host memory.
  CUcontext context = nullptr;  ///< The context that allocated, registered or opened it.
  CUcontext owner = nullptr;    ///< The context whose end frees memory of a pool.
  std::shared_ptr<Pool> pool;
  bool is_ready = true;     ///< False until the stream has executed the allocation.
  bool is_freeing = false;  ///< A free is enqueued on a stream.
  int opened_by = -1;       ///< The device that opened it.
  std::uint64_t buffer_id = 0;
  unsigned sync_memops = 0;
  bool is_gone = false;  ///< Freed, unregistered or closed.
  IpcKey key;
  unsigned opens = 0;
  std::shared_ptr<Physical> physical;  ///< The physical memory of a mapping.
  std::set<int> accessors;             ///< The devices that may access a mapping.
};

using AllocationPtr = std::shared_ptr<Allocation>;

/// All memory that the driver manages in this process. The driver's mutex guards it.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  /// add_device() and add_host() return nullptr if the system has no memory.
  AllocationPtr add_device(std::size_t bytes);
  AllocationPtr add_host(MemoryKind kind, std::size_t bytes);
  /// Takes ownership of `file`, which is memory of another process, even if it fails.
  AllocationPtr add_opened(int file, const IpcKey& key);
  /// Returns nullptr if a part of the memory is already registered or allocated.
  AllocationPtr add_registered(void* address, std::size_t bytes);

  /// Maps the first `bytes` bytes of `physical` at `start`, which must be reserved.
  AllocationPtr add_mapped(std::uintptr_t start,
                           std::size_t bytes,
                           std::shared_ptr<Physical> physical);

  AllocationPtr find(const void* address) const;
  /// The allocations in an address range, in the order of their addresses.
  std::vector<AllocationPtr> find_all(std::uintptr_t start, std::size_t bytes) const;
  AllocationPtr find_opened(const IpcKey& key, CUcontext context) const;
  /// True if device memory was at this address, and there is none at present.
  bool was_freed(const void* address) const;
  void remove(const AllocationPtr& allocation);
  /// The allocations that the context allocated, registered or opened.
  std::vector<AllocationPtr> find_all_of(CUcontext context) const;
  std::size_t count(std::initializer_list<MemoryKind> kinds) const;

 private:
  AllocationPtr add(AllocationPtr allocation);
  AllocationPtr add_with_own_address(AllocationPtr allocation);
  std::uintptr_t reserve(std::size_t bytes);

  std::map<std::uintptr_t, AllocationPtr> allocations_;  ///< By start address.
  /// Address ranges of freed memory, by their size.
  std::map<std::size_t, std::vector<std::uintptr_t>> reserved_;
  std::uint64_t buffer_ids_ = 0;
};

}  // namespace xylem::fake_cuda
