// SPDX-License-Identifier: Apache-2.0
//
// ComputeDevices: the devices, besides the CPU, on which a job computes. All calls accept buffers
// in the memory of these devices.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"
#include "xylem/execution/cuda_pointers.h"
#include "xylem/transport/device_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace xylem::runtime {

struct ComputeDevice {
  Memory memory;  ///< The memory that the device serves.
  std::shared_ptr<execution::Compute> compute;
};

/// Makes the device that serves a kind of memory, or says why there is none.
using ComputeDeviceMaker = std::function<Result<ComputeDevice>(const Memory&)>;

/// Makes the GPUs of this machine.
Result<ComputeDevice> make_device_of_machine(const Memory& memory);

/// All threads may call it, but for transport::DeviceMemory, which has its own rule. A Compute
/// lives as long as this object. For transports, it stands for the memory of all its devices.
class ComputeDevices final : public transport::DeviceMemory {
 public:
  ComputeDevices() = default;
  ComputeDevices(std::vector<ComputeDevice> devices, ComputeDeviceMaker maker);
  ComputeDevices(const ComputeDevices&) = delete;
  ComputeDevices& operator=(const ComputeDevices&) = delete;
  ~ComputeDevices();

  /// The device that serves this memory. It is made when its memory is first used, so that a job
  /// touches no device that it does not need. Fails if there is no such device.
  Result<execution::Compute*> of(const Memory& memory) const;

  /// True if an address may be in memory of a device. Otherwise it is in memory of the host.
  bool may_find() const noexcept { return pointers_.is_driver_loaded(); }
  /// Where an address is, as the driver knows it.
  execution::CudaPointer find(const void* address) const noexcept {
    return pointers_.find(address);
  }

  void renew() noexcept override;
  bool share(const transport::ConstRegion& source, transport::DevicePlace& place) noexcept override;
  const std::byte* open(const transport::DevicePlace& place,
                        std::uint64_t bytes,
                        const Memory& reader) noexcept override;
  void close(const transport::DevicePlace& place, const Memory& reader) noexcept override;
  transport::DeviceRead begin_read(std::byte* target,
                                   const transport::ConstRegion& source) noexcept override;
  transport::DeviceRead::State state_of(const transport::DeviceRead& read) noexcept override;
  bool lend_host(std::byte* memory, std::uint64_t bytes) noexcept override;
  void take_back_host(std::byte* memory) noexcept override;

 private:
  /// A device, in a list that only grows. So it is read without a lock.
  struct Made {
    ComputeDevice device;
    Made* next = nullptr;
  };
  /// Memory of the host that is lent to the devices.
  struct Lent {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    transport::DeviceMemory* to = nullptr;  ///< The device by which all of them got it, if any.
  };

  execution::Compute* made(const Memory& memory) const noexcept;
  transport::DeviceMemory* memory_of(const Memory& memory) const noexcept;
  execution::Compute* add(ComputeDevice device) const;

  ComputeDeviceMaker maker_;
  mutable execution::CudaPointers pointers_;
  mutable Mutex mutex_;
  mutable std::atomic<Made*> devices_ = nullptr;  ///< Changed only while `mutex_` is held.
  mutable std::vector<Lent> lent_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
