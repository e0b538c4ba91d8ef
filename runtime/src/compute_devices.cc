// SPDX-License-Identifier: Apache-2.0
#include "compute_devices.h"

#include "device_kernels.h"
#include "xylem/execution/cuda.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace xylem::runtime {

Result<ComputeDevice> make_device_of_machine(const Memory& memory) {
  if (memory.kind != MemoryKind::cuda) {
    return failure(Code::unsupported,
                   "Xylem works in host and cuda memory only; copy it to one of them first");
  }
  execution::CudaOptions options;
  options.device = memory.device;
  options.kernel_names = device_kernel_names();
  XYLEM_TRY(auto compute, make_cuda_compute(options));
  return ComputeDevice{memory, std::move(compute)};
}

ComputeDevices::ComputeDevices(std::vector<ComputeDevice> devices, ComputeDeviceMaker maker)
    : maker_(std::move(maker)),
      devices_(std::make_move_iterator(devices.begin()), std::make_move_iterator(devices.end())) {}

execution::Compute* ComputeDevices::made(const Memory& memory) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(devices_, memory, &ComputeDevice::memory);
  return found == devices_.end() ? nullptr : found->compute.get();
}

Result<execution::Compute*> ComputeDevices::of(const Memory& memory) const {
  if (memory == execution::kNotTold) {
    return failure(Code::internal,
                   "CUDA's cuPointerGetAttributes failed, so it is not known where the buffer is; "
                   "a device may be lost. State Buffer::memory for memory of the host");
  }
  if (auto* const compute = made(memory)) return compute;
  if (!maker_) return failure(Code::unsupported, "this job has no device with such memory");
  // Without the mutex, since it may have to wait for a device. If two threads make the same device,
  // one of the two is dropped.
  XYLEM_TRY(auto device, maker_(memory));
  if (auto* const compute = made(memory)) return compute;
  const std::lock_guard lock(mutex_);
  return devices_.emplace_back(std::move(device)).compute.get();
}

// ---- for transports ----

transport::DeviceMemory* ComputeDevices::memory_of(const Memory& memory) const noexcept {
  auto* const compute = made(memory);
  return compute == nullptr ? nullptr : compute->device_memory();
}

bool ComputeDevices::share(const transport::ConstRegion& source,
                           transport::DevicePlace& place) noexcept {
  auto* const memory = memory_of(source.memory);
  return memory != nullptr && memory->share(source, place);
}

const std::byte* ComputeDevices::open(const transport::DevicePlace& place,
                                      std::uint64_t bytes,
                                      const Memory& reader) noexcept {
  auto* const memory = memory_of(reader);
  return memory == nullptr ? nullptr : memory->open(place, bytes, reader);
}

void ComputeDevices::close(const transport::DevicePlace& place, const Memory& reader) noexcept {
  if (auto* const memory = memory_of(reader)) memory->close(place, reader);
}

bool ComputeDevices::read(std::byte* target, const transport::ConstRegion& source) noexcept {
  auto* const memory = memory_of(source.memory);
  return memory != nullptr && memory->read(target, source);
}

}  // namespace xylem::runtime
