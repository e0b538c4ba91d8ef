// SPDX-License-Identifier: Apache-2.0
//
// ComputeDevices: the devices, besides the CPU, on which a job computes. All calls accept buffers
// in the memory of these devices.
#pragma once

#include "xylem/base/memory.h"
#include "xylem/base/status.h"
#include "xylem/execution/compute.h"

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace xylem::runtime {

struct ComputeDevice {
  Memory memory;  ///< The memory that the device serves.
  std::shared_ptr<execution::Compute> compute;
  /// Makes a gate that opens when a stream (Stream::handle) has done all that it was given so far.
  /// Null if the device has no streams. Any thread may call it.
  std::function<execution::Ticket(void* stream)> gate_after{};
  /// Makes a gate for which everything waits that the stream is given from now on.
  std::function<execution::Ticket(void* stream)> gate_before{};
};

/// Makes the device that serves a kind of memory, or says why there is none.
using ComputeDeviceMaker = std::function<Result<ComputeDevice>(const Memory&)>;

/// All threads may call it. A device stays where it is until the object ends.
class ComputeDevices {
 public:
  ComputeDevices() = default;
  ComputeDevices(std::vector<ComputeDevice> devices, ComputeDeviceMaker maker)
      : maker_(std::move(maker)),
        devices_(std::make_move_iterator(devices.begin()), std::make_move_iterator(devices.end())) {
  }

  /// The device that serves this memory. It is made when its memory is first used, so that a job
  /// touches no device that it does not need. Fails if there is no such device.
  Result<const ComputeDevice*> of(const Memory& memory) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(devices_, memory, &ComputeDevice::memory);
    if (found != devices_.end()) return &*found;
    if (!maker_) return failure(Code::unsupported, "this job has no device with such memory");
    XYLEM_TRY(auto made, maker_(memory));
    devices_.push_back(std::move(made));
    return &devices_.back();
  }

 private:
  ComputeDeviceMaker maker_;
  mutable std::mutex mutex_;
  mutable std::list<ComputeDevice> devices_;  // «mutex_»
};

}  // namespace xylem::runtime
