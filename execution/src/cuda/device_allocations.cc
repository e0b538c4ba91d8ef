// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_allocations.h"

#include <array>

namespace xylem::execution::cuda {

std::optional<DeviceAllocation> DeviceAllocation::of(const Driver& driver,
                                                     CUdeviceptr address) noexcept {
  DeviceAllocation found;
  std::array<CUpointer_attribute, 6> asked{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
  };
  std::array<void*, 6> answers{&found.type,   &found.device, &found.has_ipc,
                               &found.number, &found.start,  &found.bytes};
  if (driver.cuPointerGetAttributes(asked.size(), asked.data(), answers.data(), address) !=
          CUDA_SUCCESS ||
      !contains(found.start, found.bytes, address, 1)) {
    return std::nullopt;
  }
  return found;
}

}  // namespace xylem::execution::cuda
