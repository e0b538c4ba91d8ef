// SPDX-License-Identifier: Apache-2.0
#include "wires/compute_devices.h"

#include "config.h"
#include "config_values.h"
#include "xylem/execution/cuda.h"
#include "xylem/execution/device_kernels.h"
#include "xylem/transport/transport.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace xylem::runtime {

namespace {

/// Half of the hardware queues, or none if there is one. With 8 queues, which the driver uses if
/// the variable is not set, an H200 stood still while 7 streams waited, but not while 5 did.
std::uint32_t most_waiting_streams(const Environment& environment) {
  constexpr std::uint32_t kMost = 32, kUsual = 8;
  const auto set = environment.find("CUDA_DEVICE_MAX_CONNECTIONS");
  if (set == environment.end()) return kUsual / 2;
  const auto queues = parse_whole(set->second, 1, std::numeric_limits<std::uint32_t>::max());
  return queues ? static_cast<std::uint32_t>(std::min<std::uint64_t>(*queues, kMost) / 2)
                : kUsual / 2;
}

}  // namespace

Result<ComputeDevice> make_device_of_machine(const Memory& memory) {
  if (memory.kind != MemoryKind::cuda) {
    return failure(Code::unsupported,
                   "Xylem works in host and cuda memory only; copy it to one of them first");
  }
  execution::CudaOptions options;
  options.device = memory.device;
  options.kernel_names = execution::device_kernel_names();
  options.most_waiting_streams = most_waiting_streams(process_environment());
  XYLEM_TRY(auto compute, make_cuda_compute(options));
  return ComputeDevice{memory, std::move(compute)};
}

ComputeDevices::ComputeDevices(WorkSources& sources,
                               std::vector<ComputeDevice> devices,
                               ComputeDeviceMaker maker)
    : sources_(sources), maker_(std::move(maker)) {
  for (ComputeDevice& device : devices) (void)add(std::move(device));
}

ComputeDevices::~ComputeDevices() {
  for (Made* next = devices_; next != nullptr;) {
    const std::unique_ptr<Made> made(next);
    next = made->next;
  }
}

execution::Compute* ComputeDevices::made(const Memory& memory) const noexcept {
  const Made* at = devices_.load(std::memory_order_acquire);
  while (at != nullptr && at->device.memory != memory) at = at->next;
  return at == nullptr ? nullptr : at->device.compute.get();
}

/// Adds a device, and registers with it the host memory that no other device has registered. If
/// another thread has added the same device meanwhile, drops `device` and returns the existing one.
execution::Compute* ComputeDevices::add(ComputeDevice device) const {
  const Lock lock(mutex_);
  if (auto* const compute = made(device.memory)) return compute;
  auto* const compute = device.compute.get();
  auto* const memory = compute->device_memory();
  for (HostRegion& region : host_regions_) {
    if (region.registered_by == nullptr && memory != nullptr &&
        memory->register_host(region.memory, region.bytes)) {
      region.registered_by = memory;
    }
  }
  sources_.note_device();
  auto made = std::make_unique<Made>(Made{std::move(device), devices_});
  devices_.store(made.release(), std::memory_order_release);
  return compute;
}

Result<execution::Compute*> ComputeDevices::of(const Memory& memory) const {
  if (memory == execution::kQueryFailed) {
    return failure(Code::internal,
                   "CUDA's cuPointerGetAttributes failed, so it is not known where the buffer is; "
                   "a device may be lost. State Buffer::memory for memory of the host");
  }
  if (auto* const compute = made(memory)) return compute;
  if (!maker_) return failure(Code::unsupported, "this job has no device with such memory");
  // The mutex is not held here, since making a device may block. If two threads make the same
  // device, add() drops one of the two.
  XYLEM_TRY(auto device, maker_(memory));
  return add(std::move(device));
}

execution::DeviceUse ComputeDevices::device_use() const noexcept {
  execution::DeviceUse sum;
  for (const Made* at = devices_.load(std::memory_order_acquire); at != nullptr; at = at->next) {
    const auto use = at->device.compute->device_use();
    sum.driver_calls += use.driver_calls;
    sum.driver_time += use.driver_time;
    sum.mesh_copied_bytes += use.mesh_copied_bytes;
  }
  return sum;
}

// ---- for transports ----

transport::DeviceMemory* ComputeDevices::memory_of(const Memory& memory) const noexcept {
  auto* const compute = made(memory);
  return compute == nullptr ? nullptr : compute->device_memory();
}

void ComputeDevices::renew() noexcept {
  for (const Made* at = devices_.load(std::memory_order_acquire); at != nullptr; at = at->next) {
    if (auto* const memory = at->device.compute->device_memory()) memory->renew();
  }
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

transport::DeviceRead ComputeDevices::begin_read(std::byte* target,
                                                 const transport::ConstRegion& source) noexcept {
  auto* const memory = memory_of(source.memory);
  return memory == nullptr ? transport::DeviceRead{} : memory->begin_read(target, source);
}

transport::DeviceRead::State ComputeDevices::state_of(const transport::DeviceRead& read) noexcept {
  auto* const memory = memory_of(read.memory);
  return memory == nullptr ? transport::DeviceRead::State::failed : memory->state_of(read);
}

/// If no device can register the memory yet, add() tries again with each device that is added
/// later.
bool ComputeDevices::register_host(std::byte* memory, std::uint64_t bytes) noexcept {
  const Lock lock(mutex_);
  HostRegion region{memory, bytes};
  for (const Made* at = devices_.load(std::memory_order_acquire); at != nullptr; at = at->next) {
    auto* const device = at->device.compute->device_memory();
    if (region.registered_by == nullptr && device != nullptr &&
        device->register_host(memory, bytes)) {
      region.registered_by = device;
    }
  }
  host_regions_.push_back(region);
  return true;
}

bool ComputeDevices::unregister_host(std::byte* memory) noexcept {
  const Lock lock(mutex_);
  const auto region = std::ranges::find(host_regions_, memory, &HostRegion::memory);
  if (region == host_regions_.end()) return true;
  if (region->registered_by != nullptr && !region->registered_by->unregister_host(memory))
    return false;
  host_regions_.erase(region);
  return true;
}

}  // namespace xylem::runtime
