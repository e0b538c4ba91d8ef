// SPDX-License-Identifier: Apache-2.0
//
// Memory pools, in which memory is allocated and freed in stream order. An allocation returns the
// address at once. If a command runs before the allocation or after the free in stream order, and
// uses the memory, the device is lost, as after any use of freed memory.
#include "fakes/cuda_driver/call.h"

#include <algorithm>
#include <cstring>

namespace xylem::fake_cuda {
namespace {

std::shared_ptr<Pool> pool_of(Call& call, CUmemoryPool handle) {
  std::shared_ptr<Pool> pool = call.driver().pools.find(handle);
  if (pool == nullptr) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no memory pool, or it was destroyed");
  }
  return pool;
}

/// Returns the default pool of a device. It is created at its first use.
std::shared_ptr<Pool> default_pool(Call& call, Device& device) {
  if (device.default_pool == nullptr) {
    device.default_pool = std::make_shared<Pool>();
    device.default_pool->device = &device;
    device.default_pool->handle = call.driver().pools.add(device.default_pool);
  }
  if (device.pool == nullptr) device.pool = device.default_pool;
  return device.default_pool;
}

std::shared_ptr<Pool> present_pool(Call& call, Device& device) {
  default_pool(call, device);
  return device.pool;
}

/// Returns the stream of an allocation or free. In a capture the call fails, since this driver has
/// no graph nodes for these operations.
StreamPtr stream_outside_of_captures(Call& call, CUstream handle) {
  StreamPtr stream = call.stream(handle);
  return stream == nullptr || call.is_refused_by_capture(*stream) ? nullptr : stream;
}

CUresult allocate(Call& call,
                  CUdeviceptr* address,
                  std::size_t bytes,
                  const std::shared_ptr<Pool>& pool,
                  Stream& stream) {
  Device& device = *pool->device;
  if (bytes == 0) return call.misuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
  if (bytes > call.driver().settings.memory - device.memory_used) {
    return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  const AllocationPtr allocation = call.driver().memory.add_device(bytes);
  if (allocation == nullptr) return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  allocation->device = device.ordinal;
  allocation->owner = stream.context->handle;
  allocation->pool = pool;
  allocation->is_ready = false;
  device.memory_used += bytes;
  pool->used += bytes;
  pool->most_used = std::max(pool->most_used, pool->used);
  *address = allocation->start;
  enqueue(call.driver(), stream, [allocation](const Run&) {
    const std::lock_guard lock(driver_mutex());
    allocation->is_ready = true;
  });
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(address)) return call.result();
  const StreamPtr stream = stream_outside_of_captures(call, handle);
  if (stream == nullptr) return call.result();
  return allocate(call, address, bytes, present_pool(call, *stream->context->device), *stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address,
                                 size_t bytes,
                                 CUmemoryPool pool_handle,
                                 CUstream handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(address)) return call.result();
  const auto pool = pool_of(call, pool_handle);
  if (pool == nullptr) return call.result();
  const StreamPtr stream = stream_outside_of_captures(call, handle);
  if (stream == nullptr) return call.result();
  return allocate(call, address, bytes, pool, *stream);
}

// Frees memory in stream order. It may also be memory of cuMemAlloc.
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || address == 0) return call.result();
  const StreamPtr stream = stream_outside_of_captures(call, handle);
  if (stream == nullptr) return call.result();
  const AllocationPtr allocation = call.driver().memory.find(pointer(address));
  if (allocation == nullptr || allocation->kind != MemoryKind::device ||
      allocation->start != address || allocation->is_freeing) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no allocation, or it was freed");
  }
  allocation->is_freeing = true;
  const auto command = enqueue(call.driver(), *stream, [allocation](const Run& run) {
    const std::lock_guard lock(driver_mutex());
    if (!allocation->is_gone) run.device().driver.remove(allocation);
  });
  command->runs_on_lost_device = true;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(pool)) return call.result();
  Device* device = call.device_at(ordinal);
  if (device != nullptr) *pool = default_pool(call, *device)->handle;
  return call.result();
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(pool)) return call.result();
  Device* device = call.device_at(ordinal);
  if (device != nullptr) *pool = present_pool(call, *device)->handle;
  return call.result();
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  Call call(__func__, Needs::start);
  if (call.has_failed()) return call.result();
  Device* device = call.device_at(ordinal);
  if (device == nullptr) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  if (pool->device != device) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the pool is of another device");
  }
  default_pool(call, *device);
  device->pool = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(handle, properties)) return call.result();
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  }
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "properties that no pool of a device has");
  }
  Device* device = call.device_at(properties->location.id);
  if (device == nullptr) return call.result();
  const auto pool = std::make_shared<Pool>();
  pool->device = device;
  *handle = pool->handle = call.driver().pools.add(pool);
  return CUDA_SUCCESS;
}

// Memory that is allocated from the pool stays valid until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  Call call(__func__, Needs::start);
  if (call.has_failed()) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  Device& device = *pool->device;
  if (pool == device.default_pool) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the default pool cannot be destroyed");
  }
  if (device.pool == pool) device.pool = device.default_pool;
  call.driver().pools.remove(handle);
  return CUDA_SUCCESS;
}

// This driver's pools do not keep freed memory, so release thresholds and reuse policies have no
// effect.
CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(value)) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&pool->reuse[attribute], value, sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&pool->release_threshold, value, sizeof pool->release_threshold);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: pool->most_used = pool->used; return CUDA_SUCCESS;
    default: return call.misuse(CUDA_ERROR_INVALID_VALUE, "an attribute that cannot be set");
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(value)) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  cuuint64_t number = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &pool->reuse[attribute], sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: number = pool->release_threshold; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: number = pool->used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: number = pool->most_used; break;
    default: return call.misuse(CUDA_ERROR_INVALID_VALUE, "an attribute that does not exist here");
  }
  std::memcpy(value, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  Call call(__func__, Needs::start);
  if (!call.has_failed()) pool_of(call, handle);
  return call.result();
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* accesses, size_t count) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(accesses)) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& access = accesses[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
      return call.fail(CUDA_ERROR_NOT_SUPPORTED);
    }
    const Device* device = call.device_at(access.location.id);
    if (device == nullptr) return call.result();
    const bool is_given = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (device == pool->device) {
      if (!is_given) return call.misuse(CUDA_ERROR_INVALID_DEVICE, "the pool's own device");
    } else if (is_given) {
      if (!call.driver().settings.has_peer_access) {
        return call.misuse(CUDA_ERROR_INVALID_DEVICE, "the device cannot access its peer");
      }
      pool->accessors.insert(device->ordinal);
    } else {
      pool->accessors.erase(device->ordinal);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags,
                            CUmemoryPool handle,
                            CUmemLocation* location) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(flags, location)) return call.result();
  const auto pool = pool_of(call, handle);
  if (pool == nullptr) return call.result();
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const Device* device = call.device_at(location->id);
  if (device == nullptr) return call.result();
  const bool has_access = device == pool->device || pool->accessors.contains(device->ordinal);
  *flags = has_access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// Pools of this driver cannot be shared, since they are created without handle types. These
// functions exist because libraries that link to the driver, such as UCX, cannot be loaded if one
// is missing.

CUresult cuMemPoolExportToShareableHandle(void*,
                                          CUmemoryPool,
                                          CUmemAllocationHandleType,
                                          unsigned long long) {
  Call call(__func__, Needs::start);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool*,
                                            void*,
                                            CUmemAllocationHandleType,
                                            unsigned long long) {
  Call call(__func__, Needs::start);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
  Call call(__func__, Needs::start);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

CUresult cuMemPoolImportPointer(CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*) {
  Call call(__func__, Needs::start);
  return call.has_failed() ? call.result() : call.fail(CUDA_ERROR_NOT_SUPPORTED);
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
