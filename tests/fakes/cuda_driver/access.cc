// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/access.h"

#include <sys/mman.h>

#include <algorithm>

namespace xylem::fake_cuda {
namespace {

/// The adjacent mappings that together contain the bytes from `first` to `end`. Empty if there is a
/// gap.
std::vector<AllocationPtr> side_by_side(const Memory& memory,
                                        const AllocationPtr& first,
                                        std::uintptr_t end) {
  std::vector<AllocationPtr> mappings{first};
  std::uintptr_t at = first->start + first->bytes;
  while (at < end) {
    AllocationPtr next = memory.find(pointer(at));
    if (next == nullptr || next->kind != MemoryKind::mapped) return {};
    at = next->start + next->bytes;
    mappings.push_back(std::move(next));
  }
  return mappings;
}

/// Maps the memory of all mappings again, into one contiguous range. Returns nullptr if the system
/// has no memory.
std::shared_ptr<void> join(const std::vector<AllocationPtr>& mappings) {
  std::size_t bytes = 0;
  for (const AllocationPtr& each : mappings) bytes += each->bytes;
  void* all = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  std::shared_ptr<void> joined(all, [bytes](void* at) { munmap(at, bytes); });
  auto* at = static_cast<std::byte*>(all);
  for (const AllocationPtr& each : mappings) {
    if (mmap(at, each->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, each->physical->file,
             0) == MAP_FAILED) {
      return nullptr;
    }
    at += each->bytes;
  }
  return joined;
}

/// Completes `place` for bytes that begin in one mapping and extend into others.
void find_further(Call& call, std::uintptr_t address, std::size_t bytes, Place& place) {
  const Memory& memory = call.driver().memory;
  std::vector<AllocationPtr> mappings = side_by_side(memory, place.allocation, address + bytes);
  if (mappings.empty()) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "beyond the end of what is mapped");
    return;
  }
  place.joined = join(mappings);
  if (place.joined == nullptr) {
    call.fail(CUDA_ERROR_OUT_OF_MEMORY);
    return;
  }
  place.view = static_cast<std::byte*>(place.joined.get()) + (address - place.allocation->start);
  place.further.assign(mappings.begin() + 1, mappings.end());
}

}  // namespace

Place find_place(Call& call,
                 const Device& device,
                 const void* address,
                 std::size_t bytes,
                 Pageable pageable,
                 Peers peers) {
  Place place;
  const Memory& memory = call.driver().memory;
  place.allocation = memory.find(address);
  if (place.allocation == nullptr) {
    // Host code may pass any host address. An address that was device memory is an error.
    if (pageable == Pageable::refused || address == nullptr ||
        is_device_address(call.driver(), address)) {
      call.misuse(CUDA_ERROR_INVALID_VALUE, "the driver does not know the memory, or it was freed");
    }
    place.view = static_cast<std::byte*>(const_cast<void*>(address));
    return place;
  }
  const Allocation& allocation = *place.allocation;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  place.view = allocation.view(address);
  if (bytes > allocation.bytes - (at - allocation.start)) {
    if (allocation.kind == MemoryKind::mapped) {
      find_further(call, at, bytes, place);
    } else {
      call.misuse(CUDA_ERROR_INVALID_VALUE, "beyond the end of the allocation");
    }
  }
  const auto is_accessible = [&](const AllocationPtr& each) { return may_access(device, *each); };
  if (!call.has_failed() && peers == Peers::need_access &&
      (!is_accessible(place.allocation) ||
       !std::all_of(place.further.begin(), place.further.end(), is_accessible))) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "memory that the device may not access");
  }
  return place;
}

bool is_still_there(const Run& run, const Place& place) {
  if (place.is_pageable()) return true;
  const std::lock_guard lock(driver_mutex());
  const auto is_gone = [](const AllocationPtr& each) { return each->is_gone; };
  if (is_forbidden(run.device().driver, *place.allocation)) return false;
  const bool is_ready = place.allocation->is_ready;
  if (is_ready && !is_gone(place.allocation) &&
      std::none_of(place.further.begin(), place.further.end(), is_gone)) {
    return true;
  }
  Device& device = run.device();
  device.driver.count_misuse("a command",
                             is_ready ? "its memory was freed before it ran"
                                      : "it ran before its memory was allocated in stream order");
  device.lose(CUDA_ERROR_ILLEGAL_ADDRESS);
  return false;
}

}  // namespace xylem::fake_cuda
