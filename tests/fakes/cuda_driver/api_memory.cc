// SPDX-License-Identifier: Apache-2.0
//
// Allocation, registration and queries of memory.
#include "fakes/cuda_driver/call.h"

#include <cstring>

namespace xylem::fake_cuda {
namespace {

AllocationPtr own(Call& call, AllocationPtr allocation) {
  if (allocation == nullptr) {
    call.fail(CUDA_ERROR_OUT_OF_MEMORY);
    return nullptr;
  }
  allocation->device = call.device().ordinal;
  allocation->context = call.context().handle;
  return allocation;
}

AllocationPtr allocate_on_device(Call& call, std::size_t bytes) {
  Device& device = call.device();
  if (bytes > call.driver().settings.memory - device.memory_used) {
    call.fail(CUDA_ERROR_OUT_OF_MEMORY);
    return nullptr;
  }
  AllocationPtr allocation = own(call, call.driver().memory.add_device(bytes));
  if (allocation != nullptr) device.memory_used += bytes;
  return allocation;
}

/// Returns the allocation that begins at `address`, or nullptr. As in CUDA, the caller must wait
/// until the devices are idle before it frees the allocation.
AllocationPtr beginning_at(Call& call, const void* address, MemoryKind kind) {
  AllocationPtr allocation = call.driver().memory.find(address);
  if (allocation != nullptr && allocation->kind == kind &&
      allocation->start == reinterpret_cast<std::uintptr_t>(address) && !allocation->is_freeing) {
    return allocation;
  }
  return nullptr;
}

/// Waits until the device of the allocation and the device of the current context are idle, and
/// then removes the allocation.
CUresult remove_when_idle(Call& call, const AllocationPtr& allocation) {
  Device& home = *call.driver().devices[static_cast<std::size_t>(allocation->device)];
  const auto wait = [&](const Device& device) {
    allocation->is_on_host() ? call.wait_for_idle(device) : call.hold_until_idle(device);
  };
  wait(home);
  if (&home != &call.device()) wait(call.device());
  if (allocation->is_gone) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "two threads free the same memory");
  }
  call.driver().remove(allocation);
  return call.end();
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  if (bytes == 0) return call.misuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
  const AllocationPtr allocation = allocate_on_device(call, bytes);
  if (allocation != nullptr) *address = allocation->start;
  return call.result();
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  if (bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no bytes, or flags that do not exist");
  }
  const auto allocation = own(call, call.driver().memory.add_host(MemoryKind::managed, bytes));
  if (allocation != nullptr) *address = allocation->start;
  return call.result();
}

CUresult cuMemFree(CUdeviceptr address) {
  Call call(__func__, Needs::context_even_if_lost, DuringCapture::unsafe);
  if (call.has_failed() || address == 0) return call.result();
  AllocationPtr allocation = beginning_at(call, pointer(address), MemoryKind::device);
  if (allocation == nullptr) {
    allocation = beginning_at(call, pointer(address), MemoryKind::managed);
  }
  if (allocation == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no allocation, or it was freed");
  }
  return remove_when_idle(call, allocation);
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(free, total)) return call.result();
  *total = call.driver().settings.memory;
  *free = *total - call.device().memory_used;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr) return call.fail(CUDA_ERROR_NOT_FOUND);
  if (base != nullptr) *base = allocation->start;
  if (bytes != nullptr) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (bytes == 0 || (flags & ~kKnown) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no bytes, or flags that do not exist");
  }
  const auto allocation = own(call, call.driver().memory.add_host(MemoryKind::pinned, bytes));
  if (allocation != nullptr) *address = allocation->alias;
  return call.result();
}

CUresult cuMemFreeHost(void* address) {
  Call call(__func__, Needs::context_even_if_lost, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const AllocationPtr allocation = beginning_at(call, address, MemoryKind::pinned);
  if (allocation == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no allocation, or it was freed");
  }
  return remove_when_idle(call, allocation);
}

CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (bytes == 0 || (flags & ~kKnown) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no bytes, or flags that do not exist");
  }
  AllocationPtr allocation = call.driver().memory.add_registered(address, bytes);
  if (allocation == nullptr) {
    return call.misuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "registered already");
  }
  own(call, std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
  Call call(__func__, Needs::context_even_if_lost, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(address)) return call.result();
  const AllocationPtr allocation = beginning_at(call, address, MemoryKind::registered);
  if (allocation == nullptr) {
    return call.misuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "not registered");
  }
  return remove_when_idle(call, allocation);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* on_device, void* address, unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(on_device, address)) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(address);
  if (allocation == nullptr || !allocation->is_on_host() || flags != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no pinned host memory");
  }
  *on_device = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

// This driver has no functions for advice and prefetch, so these attributes have their default
// values.
CUresult cuMemRangeGetAttribute(
    void* data, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr address, size_t count) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(data)) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || allocation->kind != MemoryKind::managed || count == 0 ||
      count > allocation->bytes - (address - allocation->start)) {
    return call.fail(CUDA_ERROR_INVALID_VALUE);
  }
  int value = CU_DEVICE_INVALID;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: value = 0; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: break;
    default: return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  }
  if (bytes != sizeof value) return call.misuse(CUDA_ERROR_INVALID_VALUE, "the size of an int");
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
