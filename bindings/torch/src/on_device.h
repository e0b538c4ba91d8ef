// SPDX-License-Identifier: Apache-2.0
//
// OnDevice: a call on tensors of a device.
//
//   the caller's stream:  producer ── call ── other work ── wait() ── consumer
//                                      │                      ▲
//   Xylem:                             └──► the call ─────────┤
//   the group's own stream:                     └──► copies ──┘   if there are landings
//
// The call begins when the caller's stream has done what it was given before the call. The stream
// goes on meanwhile, and waits only where Task::wait() is called. So computation and communication
// overlap, calls do not wait for each other, and no call occupies a stream.
#pragma once

#include "streams.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <c10/core/Event.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <vector>

namespace xylem::pytorch {

using Works = c10::SmallVector<xylem::Work, 1>;

/// A copy to be made after the operations have succeeded.
struct Landing {
  at::Tensor memory;
  at::Tensor tensor;
};

/// Who makes calls on devices: a group, its streams, and whether wait() blocks the calling thread.
struct DeviceCaller {
  OwnStreams streams;
  bool blocks = false;
};

class OnDevice {
 public:
  /// A call of this thread on tensors of `device`, after the device's current stream.
  OnDevice(const Communicator& world,
           const c10::Device& device,
           std::shared_ptr<DeviceCaller> caller);
  /// A call after a stream that is not the current one.
  OnDevice(const Communicator& world,
           const DeviceStream& stream,
           std::shared_ptr<DeviceCaller> caller);
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() = default;

  /// The group; its calls begin after what the caller's stream was given before them.
  const Communicator& group() const noexcept { return group_; }
  c10::Device device() const noexcept { return stream_.torch.device(); }
  /// The stream that was current at the call.
  const DeviceStream& stream() const noexcept { return stream_; }
  /// Whether wait() blocks the calling thread instead of a stream.
  bool blocks() const noexcept { return caller_->blocks; }

  /// Lets the group's own stream make the copies after the operations have ended. The allocator
  /// learns that this stream uses the tensors. Call it at most once.
  void land(const Works& works, const std::vector<Landing>& landings);
  /// Whether the copies have been made. True if there are none.
  bool has_landed() const { return !landed_ || landed_->query(); }
  /// Lets a stream of the device wait for the operations and the copies. Throws if the device's
  /// driver fails.
  void block(const DeviceStream& stream, const Works& works) const;
  /// The group's own stream on the device.
  DeviceStream own(OwnStreams::Purpose purpose) const {
    return caller_->streams.get(device(), purpose);
  }

 private:
  const Communicator group_;
  const DeviceStream stream_;
  const std::shared_ptr<DeviceCaller> caller_;
  std::optional<c10::Event> landed_;
};

}  // namespace xylem::pytorch
