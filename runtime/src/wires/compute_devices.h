// SPDX-License-Identifier: Apache-2.0
//
// ComputeDevices: the devices, besides the CPU, on which a job computes. All calls accept buffers
// in the memory of these devices.
#pragma once

#include "progress/work_source.h"
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

/// Makes the device that serves a kind of memory, or fails with the reason why there is none.
using ComputeDeviceMaker = std::function<Result<ComputeDevice>(const Memory&)>;

/// The ComputeDeviceMaker for the GPUs of this machine. Fails for any memory other than CUDA
/// memory.
Result<ComputeDevice> make_device_of_machine(const Memory& memory);

/// Any thread may call of(), may_find() and find(). Transports reach the memory of all devices by
/// the functions of transport::DeviceMemory; that class says which thread may call these. Each
/// Compute lives at least as long as this object.
class ComputeDevices final : public transport::DeviceMemory {
 public:
  /// `maker` may be null: the job then gets no devices other than `devices`. `sources` outlives
  /// this object.
  ComputeDevices(WorkSources& sources,
                 std::vector<ComputeDevice> devices,
                 ComputeDeviceMaker maker);
  ComputeDevices(const ComputeDevices&) = delete;
  ComputeDevices& operator=(const ComputeDevices&) = delete;
  ~ComputeDevices();

  /// The device that serves this memory. A device is made when its memory is first used, so a job
  /// initializes no device that it does not need. Fails if there is no such device.
  Result<execution::Compute*> of(const Memory& memory) const;

  /// False if all memory is host memory, since no driver is loaded. find() is then not needed.
  bool may_find() const noexcept { return pointers_.is_driver_loaded(); }
  /// Returns in which memory an address is, according to the driver.
  execution::CudaPointer find(const void* address) const noexcept {
    return pointers_.find(address);
  }

  /// How much all devices have used their drivers. Any thread may call this.
  execution::DeviceUse device_use() const noexcept;

  void renew() noexcept override;
  bool share(const transport::ConstRegion& source, transport::DevicePlace& place) noexcept override;
  const std::byte* open(const transport::DevicePlace& place,
                        std::uint64_t bytes,
                        const Memory& reader) noexcept override;
  void close(const transport::DevicePlace& place, const Memory& reader) noexcept override;
  transport::DeviceRead begin_read(std::byte* target,
                                   const transport::ConstRegion& source) noexcept override;
  transport::DeviceRead::State state_of(const transport::DeviceRead& read) noexcept override;
  bool register_host(std::byte* memory, std::uint64_t bytes) noexcept override;
  bool unregister_host(std::byte* memory) noexcept override;

 private:
  /// A node of the list of devices. The list only grows, so it is read without a lock.
  struct Made {
    ComputeDevice device;
    Made* next = nullptr;
  };
  /// Host memory that has been passed to register_host().
  struct HostRegion {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    /// The device that has registered it; null: none.
    transport::DeviceMemory* registered_by = nullptr;
  };

  execution::Compute* made(const Memory& memory) const noexcept;
  transport::DeviceMemory* memory_of(const Memory& memory) const noexcept;
  execution::Compute* add(ComputeDevice device) const;

  WorkSources& sources_;
  ComputeDeviceMaker maker_;
  mutable execution::CudaPointers pointers_;
  mutable Mutex mutex_;
  mutable std::atomic<Made*> devices_ = nullptr;  ///< Changed only while `mutex_` is held.
  mutable std::vector<HostRegion> host_regions_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::runtime
