// SPDX-License-Identifier: Apache-2.0
//
// Memory that the driver knows.
//
//   device memory   address that callers see:  [ no access             ]
//                   alias:                     [ read, write           ][ guard page ]
//   host memory     address == alias, which the host may touch
//
// The alias of device memory maps a memfd, by which another process can open the memory. When
// device memory is freed, its address range stays reserved, so that a stale access by the host
// still faults. The next allocation of this size gets the range again.
//
// A mapping of physical memory (cuMemMap) is such an allocation, too. Its address range belongs to
// a reservation (reservations.h), and its file to the physical memory.
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

/// Tells memory of other processes apart. `inode` detects that a descriptor was used again.
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
  /// Unmaps the alias. Commands hold the allocations that they use, so this may be after the free.
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
  std::size_t mapped_bytes = 0;  ///< Whole pages.
  std::byte* alias = nullptr;
  int file = -1;
  int device = 0;               ///< Where the memory is; of host memory, who allocated it.
  CUcontext context = nullptr;  ///< Which allocated, registered or opened it.
  CUcontext owner = nullptr;    ///< With which memory of a pool ends; it has no context.
  std::shared_ptr<Pool> pool;
  bool is_ready = true;     ///< False until a stream reaches the allocation in its order.
  bool is_freeing = false;  ///< A stream will free it.
  int opened_by = -1;       ///< The device that opened it.
  std::uint64_t buffer_id = 0;
  unsigned sync_memops = 0;
  bool is_gone = false;  ///< Freed, unregistered or closed.
  IpcKey key;
  unsigned opens = 0;
  std::shared_ptr<Physical> physical;  ///< What a mapping maps.
  std::set<int> accessors;             ///< The devices that may access a mapping.
};

using AllocationPtr = std::shared_ptr<Allocation>;

/// All memory of the process. The driver's mutex guards it.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  /// These return nullptr if the system has no memory.
  AllocationPtr add_device(std::size_t bytes);
  AllocationPtr add_host(MemoryKind kind, std::size_t bytes);
  /// Takes the descriptor of another process's memory, also on failure.
  AllocationPtr add_opened(int file, const IpcKey& key);
  /// Returns nullptr if some of the memory is known already.
  AllocationPtr add_registered(void* address, std::size_t bytes);

  /// Maps the first bytes of `physical` at `start`, which is reserved.
  AllocationPtr add_mapped(std::uintptr_t start,
                           std::size_t bytes,
                           std::shared_ptr<Physical> physical);

  AllocationPtr find(const void* address) const;
  /// The allocations in an address range, in order.
  std::vector<AllocationPtr> find_all(std::uintptr_t start, std::size_t bytes) const;
  AllocationPtr find_opened(const IpcKey& key, CUcontext context) const;
  /// True if device memory was at this address, and none is there now.
  bool was_freed(const void* address) const;
  void remove(const AllocationPtr& allocation);
  /// What the context allocated, registered or opened.
  std::vector<AllocationPtr> find_all_of(CUcontext context) const;
  std::size_t count(std::initializer_list<MemoryKind> kinds) const;

 private:
  AllocationPtr add(AllocationPtr allocation);
  AllocationPtr add_with_own_address(AllocationPtr allocation);
  std::uintptr_t reserve(std::size_t bytes);

  std::map<std::uintptr_t, AllocationPtr> allocations_;  ///< By start.
  /// Address ranges that were freed, by their size.
  std::map<std::size_t, std::vector<std::uintptr_t>> reserved_;
  std::uint64_t buffer_ids_ = 0;
};

}  // namespace xylem::fake_cuda
