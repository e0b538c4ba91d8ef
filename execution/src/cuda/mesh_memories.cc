// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh_memories.h"

#include <utility>

namespace xylem::execution::cuda {

void MeshMemories::free(const NoStreamWaits& proof) noexcept {
  const Lock lock(mutex_);
  const BlockingDriver& driver = driver_.blocking(proof);
  for (const auto& opened : kept_) opened->close_all(proof);
  kept_.clear();
  for (const Memory& memory : free_) {
    if (memory.staging != 0) driver.cuMemFree(memory.staging);
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
  if (memory.staging == 0) {
    XYLEM_TRY(driver_.check(driver_.cuMemAlloc(&memory.staging, staging_bytes_), "cuMemAlloc"));
  }
  if (memory.done == nullptr) {
    void* done = nullptr;
    XYLEM_TRY(driver_.check(
        driver_.cuMemHostAlloc(&done, 2 * sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
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

}  // namespace xylem::execution::cuda
