// SPDX-License-Identifier: Apache-2.0
//
// Allocation in the C API.
#include "xylem/runtime/allocation.h"

#include "failure.h"

xylem_status xylem_allocate(size_t bytes, void** memory) {
  return xylem::c::guarded([&]() -> xylem::Status {
    if (memory == nullptr) return xylem::c::null_argument("memory");
    *memory = nullptr;
    XYLEM_TRY(auto allocation, xylem::allocate(bytes));
    *memory = allocation.release();
    return {};
  });
}

xylem_status xylem_allocate_on_device(size_t bytes, int32_t device, void** memory) {
  return xylem::c::guarded([&]() -> xylem::Status {
    if (memory == nullptr) return xylem::c::null_argument("memory");
    *memory = nullptr;
    XYLEM_TRY(auto allocation, xylem::allocate(bytes, {xylem::MemoryKind::cuda, device}));
    *memory = allocation.release();
    return {};
  });
}

xylem_status xylem_deallocate(void* memory) {
  return xylem::c::guarded([&] { return xylem::deallocate(memory); });
}
