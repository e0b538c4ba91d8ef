// SPDX-License-Identifier: Apache-2.0
//
// ComputeDevices: the devices, besides the CPU, on which a job computes. All calls accept buffers
// in the memory of these devices.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/execution/compute.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::runtime {

struct ComputeDevice {
  Memory memory;  ///< The memory that the device serves.
  std::shared_ptr<execution::Compute> compute;
  /// Makes a ticket for everything that the calling thread has enqueued on the device so far. The
  /// call that the thread is about to make begins when this ticket has completed. Any thread may
  /// call it. If it is null, calls begin at once.
  std::function<execution::Ticket()> make_gate;
};

class ComputeDevices {
 public:
  ComputeDevices() = default;
  explicit ComputeDevices(std::vector<ComputeDevice> devices) : devices_(std::move(devices)) {}

  /// The device that serves this memory; null if there is none, as for host memory.
  const ComputeDevice* find(const Memory& memory) const noexcept {
    const auto found = std::ranges::find(devices_, memory, &ComputeDevice::memory);
    return found == devices_.end() ? nullptr : &*found;
  }

 private:
  std::vector<ComputeDevice> devices_;
};

}  // namespace xylem::runtime
