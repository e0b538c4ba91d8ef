// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/access.h"

namespace xylem::fake_cuda {

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
    // Host code may pass any address, but not one that was device memory.
    if (pageable == Pageable::refused || address == nullptr || memory.was_freed(address)) {
      call.misuse(CUDA_ERROR_INVALID_VALUE, "the driver does not know the memory, or it was freed");
    }
    place.view = static_cast<std::byte*>(const_cast<void*>(address));
    return place;
  }
  const Allocation& allocation = *place.allocation;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - allocation.start;
  if (bytes > allocation.bytes - offset) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "beyond the end of the allocation");
  } else if (peers == Peers::need_access && !may_access(device, allocation)) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "memory of a device without enabled peer access");
  }
  place.view = allocation.view(address);
  return place;
}

bool is_still_there(const Run& run, const Place& place) {
  if (place.is_pageable()) return true;
  const std::lock_guard lock(driver_mutex());
  if (!place.allocation->is_gone) return true;
  Device& device = run.device();
  device.driver.count_misuse("a command", "its memory was freed before it ran");
  device.lose(CUDA_ERROR_ILLEGAL_ADDRESS);
  return false;
}

}  // namespace xylem::fake_cuda
