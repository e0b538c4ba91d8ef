// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace xylem::fake_cuda {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* map(std::size_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

void* at_address(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool has_own_address(MemoryKind kind) {
  return kind == MemoryKind::device || kind == MemoryKind::opened;
}

bool has_alias(MemoryKind kind) { return has_own_address(kind) || kind == MemoryKind::mapped; }

/// Maps the file at an address at which commands can access the bytes. Returns false if the system
/// has no memory.
bool map_alias(Allocation& allocation, int file) {
  allocation.mapped_bytes = whole_pages(allocation.bytes);
  void* alias = map(allocation.mapped_bytes + kPage, PROT_NONE);
  if (alias == nullptr) return false;
  allocation.alias = static_cast<std::byte*>(alias);
  return mmap(alias, allocation.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
              0) != MAP_FAILED;
}

}  // namespace

Allocation::~Allocation() {
  if (alias != nullptr && kind != MemoryKind::registered) {
    munmap(alias, mapped_bytes + (has_alias(kind) ? kPage : 0));
  }
  if (file >= 0) close(file);
}

Memory::~Memory() {
  while (!allocations_.empty()) remove(AllocationPtr(allocations_.begin()->second));
  for (const auto& [bytes, ranges] : reserved_) {
    for (const std::uintptr_t range : ranges) munmap(at_address(range), bytes);
  }
}

std::uintptr_t Memory::reserve(std::size_t bytes) {
  std::vector<std::uintptr_t>& free = reserved_[bytes];
  if (free.empty()) return reinterpret_cast<std::uintptr_t>(map(bytes, PROT_NONE));
  const std::uintptr_t range = free.back();
  free.pop_back();
  return range;
}

AllocationPtr Memory::add(AllocationPtr allocation) {
  allocation->buffer_id = ++buffer_ids_;
  allocations_.emplace(allocation->start, allocation);
  return allocation;
}

AllocationPtr Memory::add_with_own_address(AllocationPtr allocation) {
  if (!map_alias(*allocation, allocation->file)) return nullptr;
  allocation->start = reserve(allocation->mapped_bytes);
  return allocation->start == 0 ? nullptr : add(std::move(allocation));
}

AllocationPtr Memory::add_device(std::size_t bytes) {
  auto allocation = std::make_shared<Allocation>();
  allocation->bytes = bytes;
  allocation->file = memfd_create("fake_cuda", MFD_CLOEXEC);
  const auto size = static_cast<off_t>(whole_pages(bytes));
  if (allocation->file < 0 || ftruncate(allocation->file, size) != 0) return nullptr;
  allocation = add_with_own_address(std::move(allocation));
  if (allocation != nullptr)
    std::memset(allocation->alias, kPattern, std::min(bytes, kMostPattern));
  return allocation;
}

AllocationPtr Memory::add_opened(int file, const IpcKey& key) {
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = MemoryKind::opened;
  allocation->bytes = key.bytes;
  allocation->file = file;
  allocation->key = key;
  return add_with_own_address(std::move(allocation));
}

AllocationPtr Memory::add_host(MemoryKind kind, std::size_t bytes) {
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = kind;
  allocation->bytes = bytes;
  allocation->mapped_bytes = whole_pages(bytes);
  allocation->alias =
      static_cast<std::byte*>(map(allocation->mapped_bytes, PROT_READ | PROT_WRITE));
  allocation->start = reinterpret_cast<std::uintptr_t>(allocation->alias);
  return allocation->alias == nullptr ? nullptr : add(std::move(allocation));
}

AllocationPtr Memory::add_registered(void* address, std::size_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const auto next = allocations_.lower_bound(start);
  if (next != allocations_.end() && next->first < start + bytes) return nullptr;
  if (find(address) != nullptr) return nullptr;
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = MemoryKind::registered;
  allocation->start = start;
  allocation->bytes = allocation->mapped_bytes = bytes;
  allocation->alias = static_cast<std::byte*>(address);
  return add(std::move(allocation));
}

AllocationPtr Memory::add_mapped(std::uintptr_t start,
                                 std::size_t bytes,
                                 std::shared_ptr<Physical> physical) {
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = MemoryKind::mapped;
  allocation->start = start;
  allocation->bytes = bytes;
  allocation->device = physical->properties.location.id;
  allocation->physical = std::move(physical);
  if (!map_alias(*allocation, allocation->physical->file)) return nullptr;
  return add(std::move(allocation));
}

std::vector<AllocationPtr> Memory::find_all(std::uintptr_t start, std::size_t bytes) const {
  std::vector<AllocationPtr> found;
  for (auto at = allocations_.lower_bound(start);
       at != allocations_.end() && at->first - start < bytes; ++at) {
    found.push_back(at->second);
  }
  return found;
}

AllocationPtr Memory::find(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return nullptr;
  --next;
  return next->second->contains(at) ? next->second : nullptr;
}

AllocationPtr Memory::find_opened(const IpcKey& key, CUcontext context) const {
  for (const auto& [start, allocation] : allocations_) {
    if (allocation->kind == MemoryKind::opened && allocation->key == key &&
        allocation->context == context) {
      return allocation;
    }
  }
  return nullptr;
}

bool Memory::was_freed(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& [bytes, ranges] : reserved_) {
    for (const std::uintptr_t range : ranges) {
      if (at >= range && at - range < bytes) return true;
    }
  }
  return false;
}

void Memory::remove(const AllocationPtr& allocation) {
  allocation->is_gone = true;
  if (has_own_address(allocation->kind)) {
    reserved_[allocation->mapped_bytes].push_back(allocation->start);
  }
  allocations_.erase(allocation->start);
}

std::vector<AllocationPtr> Memory::find_all_of(CUcontext context) const {
  std::vector<AllocationPtr> found;
  for (const auto& [start, allocation] : allocations_) {
    if (allocation->context == context || allocation->owner == context) found.push_back(allocation);
  }
  return found;
}

std::size_t Memory::count(std::initializer_list<MemoryKind> kinds) const {
  return static_cast<std::size_t>(
      std::count_if(allocations_.begin(), allocations_.end(), [&](const auto& entry) {
        return std::find(kinds.begin(), kinds.end(), entry.second->kind) != kinds.end();
      }));
}

}  // namespace xylem::fake_cuda
