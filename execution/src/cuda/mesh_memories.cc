// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh_memories.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace xylem::execution::cuda {

void MeshMemories::free(const NoStreamWaits& proof) noexcept {
  const Lock lock(mutex_);
  const BlockingDriver& driver = driver_.blocking(proof);
  for (const auto& opened : kept_) opened->close_all(proof);
  kept_.clear();
  for (const More& memory : free_more_) driver.cuMemFree(memory.start);
  for (const Memory& memory : free_) {
    if (memory.scratch != 0) driver.cuMemFree(memory.scratch);
    if (memory.done != nullptr) driver.cuMemFreeHost(memory.done);
  }
}

Result<MeshMemories::Memory> MeshMemories::take() {
  Memory memory = take_free();
  Status made = complete(memory);
  if (made) return memory;
  give_back(memory);
  return made;
}

/// Returns unused memory; all of its members are 0 if there is none.
MeshMemories::Memory MeshMemories::take_free() noexcept {
  const Lock lock(mutex_);
  if (free_.empty()) return {};
  const Memory memory = free_.back();
  free_.pop_back();
  return memory;
}

/// Allocates the parts of `memory` that are missing, and new flags in any case.
Status MeshMemories::complete(Memory& memory) const {
  if (memory.scratch == 0) {
    XYLEM_TRY(driver_.check(driver_.cuMemAlloc(&memory.scratch, scratch_bytes_), "cuMemAlloc"));
  }
  if (memory.done == nullptr) {
    void* done = nullptr;
    XYLEM_TRY(driver_.check(
        driver_.cuMemHostAlloc(&done, sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
        "cuMemHostAlloc"));
    memory.done = static_cast<std::uint64_t*>(done);
  }
  XYLEM_TRY(driver_.check(driver_.cuMemHostGetDevicePointer(&memory.done_on_device, memory.done, 0),
                          "cuMemHostGetDevicePointer"));
  return driver_.check(driver_.cuMemAlloc(&memory.flags, kFlagBytes), "cuMemAlloc");
}

void MeshMemories::give_back(const Memory& memory) noexcept {
  const Lock lock(mutex_);
  free_.push_back(memory);
}

void MeshMemories::keep(std::unique_ptr<SharedMemory> opened) {
  const Lock lock(mutex_);
  kept_.push_back(std::move(opened));
}

Result<MeshMemories::More> MeshMemories::take_more(std::uint64_t bytes) {
  {
    const Lock lock(mutex_);
    const auto found =
        std::ranges::find_if(free_more_, [&](const More& memory) { return memory.bytes >= bytes; });
    if (found != free_more_.end()) {
      const More memory = *found;
      free_more_.erase(found);
      return memory;
    }
  }
  More memory{.bytes = std::bit_ceil(bytes)};
  XYLEM_TRY(driver_.check(driver_.cuMemAlloc(&memory.start, memory.bytes), "cuMemAlloc"));
  return memory;
}

void MeshMemories::give_back(const More& memory) noexcept {
  const Lock lock(mutex_);
  free_more_.push_back(memory);
}

}  // namespace xylem::execution::cuda
