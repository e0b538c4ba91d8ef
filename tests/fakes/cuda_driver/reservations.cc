// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/reservations.h"

#include <sys/mman.h>

#include <algorithm>

namespace xylem::fake_cuda {
namespace {

void* at_address(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool contains(const Reservation& range, std::uintptr_t address) {
  return address >= range.start && address - range.start < range.bytes;
}

/// Maps more than necessary, and unmaps the parts before and after the aligned range.
std::uintptr_t map_aligned(std::size_t bytes, std::size_t alignment) {
  void* all = mmap(nullptr, bytes + alignment, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return 0;
  const auto from = reinterpret_cast<std::uintptr_t>(all);
  const std::uintptr_t start = (from + alignment - 1) / alignment * alignment;
  if (start > from) munmap(all, start - from);
  munmap(at_address(start + bytes), from + alignment - start);
  return start;
}

}  // namespace

Reservations::~Reservations() {
  for (const auto& [start, range] : reserved_) freed_.push_back(range);
  for (const Reservation& range : freed_) munmap(at_address(range.start), range.bytes);
}

std::uintptr_t Reservations::add(std::size_t bytes, std::size_t alignment) {
  const auto again = std::find_if(freed_.begin(), freed_.end(), [&](const Reservation& range) {
    return range.bytes == bytes && range.start % alignment == 0;
  });
  std::uintptr_t start = 0;
  if (again != freed_.end()) {
    start = again->start;
    freed_.erase(again);
  } else {
    start = map_aligned(bytes, alignment);
  }
  if (start != 0) reserved_.emplace(start, Reservation{start, bytes});
  return start;
}

void Reservations::remove(const Reservation& reservation) {
  const Reservation range = reservation;
  reserved_.erase(range.start);
  freed_.push_back(range);
}

const Reservation* Reservations::find(std::uintptr_t address) const {
  auto next = reserved_.upper_bound(address);
  if (next == reserved_.begin()) return nullptr;
  --next;
  return contains(next->second, address) ? &next->second : nullptr;
}

bool Reservations::was_freed(std::uintptr_t address) const {
  return std::any_of(freed_.begin(), freed_.end(),
                     [&](const Reservation& range) { return contains(range, address); });
}

}  // namespace xylem::fake_cuda
