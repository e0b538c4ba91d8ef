// SPDX-License-Identifier: Apache-2.0
#include "shm/allocations.h"

#include "shm/segment.h"
#include "xylem/transport/shared_memory.h"

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace xylem::transport::shm {

Allocations& Allocations::of_process() noexcept {
  // Never destroyed, since buffers may outlive all static objects of the process.
  alignas(Allocations) static std::array<std::byte, sizeof(Allocations)> space;
  static Allocations& allocations = *::new (space.data()) Allocations;
  return allocations;
}

Result<void*> Allocations::add(std::uint64_t bytes) {
  if (bytes == 0) return failure(Code::invalid_argument, "0 bytes to allocate: ask for 1 or more");
  XYLEM_TRY(SealedMemory made, make_sealed_memory(bytes));
  const Lock lock(mutex_);
  list_.push_back(
      {next_id_++, made.memory.get(), bytes, std::make_shared<const UniqueFd>(std::move(made.fd))});
  version_.fetch_add(1, std::memory_order_release);
  return static_cast<void*>(made.memory.release());
}

Status Allocations::remove(void* memory) {
  Allocation gone;
  {
    const Lock lock(mutex_);
    const auto at = std::ranges::find(list_, memory, &Allocation::memory);
    if (memory == nullptr || at == list_.end()) {
      return failure(Code::invalid_argument,
                     fmt::format("{} was not allocated here, or has been freed; pass what the "
                                 "allocation returned, once",
                                 memory));
    }
    gone = std::move(*at);
    list_.erase(at);
    version_.fetch_add(1, std::memory_order_release);
  }
  munmap(gone.memory, gone.bytes);
  return {};
}

std::vector<Allocation> Allocations::list() const {
  const Lock lock(mutex_);
  return list_;
}

}  // namespace xylem::transport::shm

namespace xylem::transport {

Result<void*> allocate_shared(std::uint64_t bytes) {
  return shm::Allocations::of_process().add(bytes);
}

Status free_shared(void* memory) { return shm::Allocations::of_process().remove(memory); }

}  // namespace xylem::transport
