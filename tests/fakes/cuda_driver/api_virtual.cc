// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management. Address ranges are reserved. Physical memory is created, mapped into
// these ranges, made accessible to single devices, and shared with other processes by file
// descriptors.
#include "fakes/cuda_driver/call.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace xylem::fake_cuda {
namespace {

using Handle = CUmemGenericAllocationHandle;

bool is_granular(std::uint64_t value) { return value % kGranularity == 0; }

/// This driver supports only pinned memory of a device, which can be exported as a file descriptor.
bool are_valid(Call& call, const CUmemAllocationProp& properties) {
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    call.fail(CUDA_ERROR_NOT_SUPPORTED);
    return false;
  }
  constexpr unsigned kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.win32HandleMetaData != nullptr ||
      (properties.requestedHandleTypes & ~kKnown) != 0) {
    call.misuse(CUDA_ERROR_INVALID_VALUE, "properties that no memory of a device has");
    return false;
  }
  return call.device_at(properties.location.id) != nullptr;
}

std::shared_ptr<Physical> physical_of(Call& call, Handle handle) {
  std::shared_ptr<Physical> physical = call.driver().physical.find(handle);
  if (physical != nullptr && physical->references > 0) return physical;
  call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no physical memory, or it was released");
  return nullptr;
}

void give_handle(Call& call, const std::shared_ptr<Physical>& physical, Handle* handle) {
  physical->references = 1;
  *handle = physical->handle = call.driver().physical.add(physical);
}

void drop_if_unused(Driver& driver, const Physical& physical) {
  if (physical.references > 0 || physical.mappings > 0) return;
  if (!physical.is_imported) {
    const auto device = static_cast<std::size_t>(physical.properties.location.id);
    driver.devices[device]->memory_used -= physical.bytes;
  }
  driver.physical.remove(physical.handle);
}

/// Returns the mappings that together are exactly this range. If there are none, the call has
/// failed, and the result is empty.
std::vector<AllocationPtr> mappings_of(Call& call, CUdeviceptr address, std::size_t bytes) {
  std::vector<AllocationPtr> mappings = call.driver().memory.find_all(address, bytes);
  std::uintptr_t at = address;
  for (const AllocationPtr& each : mappings) {
    if (each->kind != MemoryKind::mapped || each->start != at) break;
    at += each->bytes;
  }
  if (bytes != 0 && at == address + bytes) return mappings;
  call.misuse(CUDA_ERROR_INVALID_VALUE, "the range is not one of whole mappings without gaps");
  return {};
}

/// Waits until all devices that have access to the mappings are idle.
void wait_for_accessors(Call& call, const std::vector<AllocationPtr>& mappings) {
  for (const AllocationPtr& each : mappings) {
    for (const int device : std::set<int>(each->accessors)) {
      call.wait_for_idle(*call.driver().devices[static_cast<std::size_t>(device)]);
    }
  }
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

// The address hint is ignored.
CUresult cuMemAddressReserve(
    CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(address)) return call.result();
  if (bytes == 0 || bytes % 4096 != 0 || flags != 0 ||
      (alignment != 0 && !std::has_single_bit(alignment))) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no whole pages, or no power of two");
  }
  *address = call.driver().reservations.add(bytes, std::max(alignment, kGranularity));
  return *address == 0 ? call.fail(CUDA_ERROR_OUT_OF_MEMORY) : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call(__func__, Needs::start);
  if (call.has_failed()) return call.result();
  const Reservation* range = call.driver().reservations.find(address);
  if (range == nullptr || range->start != address || range->bytes != bytes) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "this is no reservation as it was made");
  }
  if (!call.driver().memory.find_all(address, bytes).empty()) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "memory is mapped in the range");
  }
  call.driver().reservations.remove(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes,
                                       const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(bytes, properties)) return call.result();
  if (!are_valid(call, *properties)) return call.result();
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(Handle* handle,
                     size_t bytes,
                     const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(handle, properties)) return call.result();
  if (!are_valid(call, *properties)) return call.result();
  if (bytes == 0 || !is_granular(bytes) || flags != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the size is no multiple of the granularity");
  }
  Device& device = *call.device_at(properties->location.id);
  if (bytes > call.driver().settings.memory - device.memory_used) {
    return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  const auto physical = make_physical(bytes, *properties);
  if (physical == nullptr) return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  device.memory_used += bytes;
  give_handle(call, physical, handle);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(Handle handle) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto physical = physical_of(call, handle);
  if (physical == nullptr) return call.result();
  --physical->references;
  drop_if_unused(call.driver(), *physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(Handle* handle, void* address) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(handle)) return call.result();
  const AllocationPtr mapping = call.driver().memory.find(address);
  // This is no misuse: libraries call this function to find out whether memory is a mapping.
  if (mapping == nullptr || mapping->kind != MemoryKind::mapped) {
    return call.fail(CUDA_ERROR_INVALID_VALUE);
  }
  ++mapping->physical->references;
  *handle = mapping->physical->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, Handle handle) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(properties)) return call.result();
  const auto physical = physical_of(call, handle);
  if (physical != nullptr) *properties = physical->properties;
  return call.result();
}

CUresult cuMemMap(
    CUdeviceptr address, size_t bytes, size_t offset, Handle handle, unsigned long long flags) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto physical = physical_of(call, handle);
  if (physical == nullptr) return call.result();
  const Reservation* range = call.driver().reservations.find(address);
  if (bytes == 0 || !is_granular(bytes) || !is_granular(address) || offset != 0 || flags != 0 ||
      bytes > physical->bytes) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no multiples of the granularity, or an offset");
  }
  if (range == nullptr || bytes > range->bytes - (address - range->start) ||
      !call.driver().memory.find_all(address, bytes).empty() ||
      call.driver().memory.find(pointer(address)) != nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the range is not reserved, or mapped already");
  }
  const auto mapping = call.driver().memory.add_mapped(address, bytes, physical);
  if (mapping == nullptr) return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  ++physical->mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const std::vector<AllocationPtr> mappings = mappings_of(call, address, bytes);
  wait_for_accessors(call, mappings);
  for (const AllocationPtr& each : mappings) {
    if (each->is_gone) return call.misuse(CUDA_ERROR_INVALID_VALUE, "two threads unmap the range");
    call.driver().memory.remove(each);
    --each->physical->mappings;
    drop_if_unused(call.driver(), *each->physical);
  }
  return call.result();
}

CUresult cuMemSetAccess(CUdeviceptr address,
                        size_t bytes,
                        const CUmemAccessDesc* accesses,
                        size_t count) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(accesses)) return call.result();
  const std::vector<AllocationPtr> mappings = mappings_of(call, address, bytes);
  for (size_t i = 0; i < count && !call.has_failed(); ++i) {
    const CUmemAccessDesc& access = accesses[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
      return call.fail(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (call.device_at(access.location.id) == nullptr) return call.result();
    for (const AllocationPtr& each : mappings) {
      if (each->device != access.location.id && !call.driver().settings.has_peer_access) {
        return call.misuse(CUDA_ERROR_INVALID_DEVICE, "the device cannot access its peer");
      }
      if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        each->accessors.insert(access.location.id);
      } else {
        each->accessors.erase(access.location.id);
      }
    }
  }
  return call.result();
}

CUresult cuMemGetAccess(unsigned long long* flags,
                        const CUmemLocation* location,
                        CUdeviceptr address) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(flags, location)) return call.result();
  const AllocationPtr mapping = call.driver().memory.find(pointer(address));
  if (mapping == nullptr || mapping->kind != MemoryKind::mapped) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "nothing is mapped at the address");
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  if (call.device_at(location->id) == nullptr) return call.result();
  *flags = mapping->accessors.contains(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// The caller owns the descriptor.
CUresult cuMemExportToShareableHandle(void* shareable,
                                      Handle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(shareable)) return call.result();
  const auto physical = physical_of(call, handle);
  if (physical == nullptr) return call.result();
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 ||
      (physical->properties.requestedHandleTypes & type) == 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the memory was not created for such a handle");
  }
  const int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return call.fail(CUDA_ERROR_OPERATING_SYSTEM);
  std::memcpy(shareable, &file, sizeof file);
  return CUDA_SUCCESS;
}

// The caller keeps the ownership of the descriptor.
CUresult cuMemImportFromShareableHandle(Handle* handle,
                                        void* shareable,
                                        CUmemAllocationHandleType type) {
  Call call(__func__, Needs::start, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(handle)) return call.result();
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "a type of handle that does not exist here");
  }
  const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  const auto physical = import_physical(file);
  if (physical == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "the descriptor is not of exported memory");
  }
  if (call.device_at(physical->properties.location.id) == nullptr) return call.result();
  give_handle(call, physical, handle);
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
