// SPDX-License-Identifier: Apache-2.0
//
// Attributes of addresses.
#include "fakes/cuda_driver/call.h"

#include <cstring>

namespace xylem::fake_cuda {
namespace {

/// Returns the number of bytes that the driver writes for an attribute; 0 for an unknown attribute.
/// The header does not define the size of a boolean. This driver writes an int, to detect callers
/// that pass a smaller variable.
std::size_t bytes_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return sizeof(int);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return sizeof(std::uint64_t);
    default: return 0;
  }
}

/// What the driver knows about an address.
struct Subject {
  CUdeviceptr address = 0;
  AllocationPtr memory;
  const Reservation* range = nullptr;  ///< The reservation that contains the address, or null.
  const Device* asking = nullptr;      ///< The device of the current context, or null.
};

Subject subject_at(const Call& call, CUdeviceptr address) {
  return {address, call.driver().memory.find(pointer(address)),
          call.driver().reservations.find(address), call.current_device()};
}

bool is_known(const Subject& subject) {
  return subject.memory != nullptr || subject.range != nullptr;
}

/// True if the address has this attribute. Device memory has no host pointer. A reserved address
/// without a mapping has only attributes of its range.
bool has_value(const Subject& subject, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPED: return is_known(subject);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return subject.memory != nullptr && subject.memory->is_touchable();
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return subject.memory != nullptr && subject.asking != nullptr;
    default: return subject.memory != nullptr;
  }
}

/// Returns the value of an attribute that also exists for addresses without a mapping.
std::uint64_t range_value_of(const Subject& subject, CUpointer_attribute attribute) {
  if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) return subject.memory == nullptr ? 0 : 1;
  const bool is_start = attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
  if (subject.range != nullptr) return is_start ? subject.range->start : subject.range->bytes;
  return is_start ? subject.memory->start : subject.memory->bytes;
}

std::uint64_t memory_value_of(const Settings& settings,
                              const Subject& subject,
                              CUpointer_attribute attribute) {
  const Allocation& memory = *subject.memory;
  const Physical* physical = memory.physical.get();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return reinterpret_cast<std::uint64_t>(memory.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return memory.is_on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return subject.address;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return memory.sync_memops;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return memory.buffer_id;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return memory.kind == MemoryKind::managed ? 1 : 0;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return static_cast<std::uint64_t>(memory.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return memory.is_ipc_capable() && settings.has_ipc ? 1 : 0;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return physical == nullptr ? 0U : unsigned{physical->properties.requestedHandleTypes};
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return reinterpret_cast<std::uint64_t>(memory.pool == nullptr ? nullptr
                                                                    : memory.pool->handle);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return may_access(*subject.asking, memory) ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                 : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return memory.start;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return memory.bytes;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return physical == nullptr ? memory.buffer_id : physical->block_id;
    default: return 0;
  }
}

/// Precondition: has_value() is true.
std::uint64_t value_at(const Call& call, const Subject& subject, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPED: return range_value_of(subject, attribute);
    default: return memory_value_of(call.driver().settings, subject, attribute);
  }
}

void store(std::uint64_t value, CUpointer_attribute attribute, void* data) {
  const auto narrow = static_cast<std::uint32_t>(value);
  if (bytes_of(attribute) == sizeof narrow) {
    std::memcpy(data, &narrow, sizeof narrow);
  } else {
    std::memcpy(data, &value, sizeof value);
  }
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(data)) return call.result();
  if (bytes_of(attribute) == 0) return call.fail(CUDA_ERROR_INVALID_VALUE);
  // Programs query unknown addresses to detect host memory, so this is no misuse.
  const Subject subject = subject_at(call, address);
  if (!has_value(subject, attribute)) return call.fail(CUDA_ERROR_INVALID_VALUE);
  store(value_at(call, subject, attribute), attribute, data);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count,
                                CUpointer_attribute* attributes,
                                void** data,
                                CUdeviceptr address) {
  Call call(__func__, Needs::start);
  if (call.has_failed() || !call.has(attributes, data)) return call.result();
  const Subject subject = subject_at(call, address);
  for (unsigned i = 0; i < count; ++i) {
    if (bytes_of(attributes[i]) == 0) return call.fail(CUDA_ERROR_INVALID_VALUE);
    if (!call.has(data[i])) return call.result();
    std::uint64_t value = 0;
    if (has_value(subject, attributes[i])) {
      value = value_at(call, subject, attributes[i]);
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      // An address without a device has the ordinal CU_DEVICE_INVALID.
      value = static_cast<std::uint64_t>(CU_DEVICE_INVALID);
    }
    store(value, attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value,
                               CUpointer_attribute attribute,
                               CUdeviceptr address) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(value)) return call.result();
  const AllocationPtr memory = call.driver().memory.find(pointer(address));
  if (memory == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no allocation, or not SYNC_MEMOPS");
  }
  unsigned is_on = 0;
  std::memcpy(&is_on, value, sizeof is_on);
  memory->sync_memops = is_on != 0 ? 1 : 0;
  return is_on != 0 ? call.wait({call.context().legacy->last}, call.device()) : CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
