// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh_memories.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace xylem::execution::cuda {

MeshMemories::~MeshMemories() {
  if (free_.empty() && free_more_.empty() && kept_.empty()) return;
  const CurrentContext current(driver_, context_);
  kept_.clear();
  for (const More& memory : free_more_) driver_.cuMemFree(memory.start);
  for (const Memory& memory : free_) {
    driver_.cuMemFree(memory.scratch);
    driver_.cuMemFreeHost(memory.done);
  }
}

Result<MeshMemories::Memory> MeshMemories::take() {
  XYLEM_TRY(Memory memory, take_free());
  Status made = driver_.check(driver_.cuMemAlloc(&memory.flags, kFlagBytes), "cuMemAlloc");
  if (made) return memory;
  give_back(memory);
  return made;
}

/// Memory without flags.
Result<MeshMemories::Memory> MeshMemories::take_free() {
  Memory memory;
  {
    const Lock lock(mutex_);
    if (!free_.empty()) {
      memory = free_.back();
      free_.pop_back();
      return memory;
    }
  }
  XYLEM_TRY(driver_.check(driver_.cuMemAlloc(&memory.scratch, scratch_bytes_), "cuMemAlloc"));
  void* done = nullptr;
  Status made =
      driver_.check(driver_.cuMemHostAlloc(&done, sizeof(std::uint64_t), CU_MEMHOSTALLOC_PORTABLE),
                    "cuMemHostAlloc");
  if (made) {
    memory.done = static_cast<std::uint64_t*>(done);
    made = driver_.check(driver_.cuMemHostGetDevicePointer(&memory.done_on_device, done, 0),
                         "cuMemHostGetDevicePointer");
  }
  if (made) return memory;
  if (done != nullptr) driver_.cuMemFreeHost(done);
  driver_.cuMemFree(memory.scratch);
  return made;
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
