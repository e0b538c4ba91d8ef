// SPDX-License-Identifier: Apache-2.0
//
// OnDevice: a call on tensors of a device.
//
//   the caller's stream:  producer ── call ── other work ── wait() ── consumer
//                                      │                      ▲
//   Xylem:                             └──► the call ─────────┤
//   the group's own stream:                     └──► copies ──┘   if there are copies
//
// The call begins when the caller's stream has completed the work that was enqueued before the
// call. The stream continues meanwhile, and waits only where Task::wait() is called. So computation
// and communication overlap, calls do not wait for each other, and no call occupies a stream.
//
// The picture shows a call in the order of streams. For other calls, the thread that calls wait()
// waits in place of the stream, and the copies are enqueued on a stream when the call has ended. So
// no stream ever waits for such a call. By default, calls that the host has to end are of this
// kind: while a stream waits, some functions of the driver block all threads, including those that
// would end the call.
#pragma once

#include "streams.h"
#include "tensors.h"
#include "xylem/xylem.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace xylem::pytorch {

using Works = c10::SmallVector<xylem::Work, 1>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/// A copy to be made after the operations have succeeded.
struct OutputCopy {
  at::Tensor memory;
  at::Tensor tensor;
};

/// When wait() for a call on a device blocks the calling thread. Otherwise the current stream
/// waits.
enum class BlockingWait : std::uint8_t {
  by_need,  ///< If the host has to end the call, since the devices do not carry it out themselves.
  never,
  always,
};

/// What all calls of a group on devices share: its streams, and when wait() blocks the calling
/// thread.
struct DeviceCaller {
  OwnStreams streams;
  BlockingWait blocking_wait = BlockingWait::by_need;
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

  /// The communicator; its calls begin after the work that was enqueued on the caller's stream
  /// before.
  const Communicator& group() const noexcept { return group_; }
  c10::Device device() const noexcept { return stream_.torch.device(); }
  /// The stream that was current at the call.
  const DeviceStream& stream() const noexcept { return stream_; }
  /// Whether wait() for these operations blocks the calling thread instead of a stream.
  bool blocks(const Works& works) const noexcept;

  /// Enqueues the copies on a stream of the group. The stream waits for the operations, unless they
  /// have ended. The allocator records that this stream uses the tensors. Call it at most once.
  void enqueue_copies(const Works& works, const std::vector<OutputCopy>& copies);
  /// Whether the copies have been made. True if there are none.
  bool have_copies_ended() const { return !copies_ended_ || copies_ended_->query(); }
  /// Makes a stream of the device wait for the operations and the copies. Throws if the device's
  /// driver fails.
  void block(const DeviceStream& stream, const Works& works) const;
  /// A stream of the group on the device.
  DeviceStream own(OwnStreams::Purpose purpose) const {
    return caller_->streams.get(device(), purpose);
  }

 private:
  const Communicator group_;
  const DeviceStream stream_;
  const std::shared_ptr<DeviceCaller> caller_;
  std::optional<c10::Event> copies_ended_;
};

/// A future of this type, for a call on a device, or for one on the CPU if that is null.
FuturePtr make_future(c10::TypePtr type, const OnDevice* device);

}  // namespace xylem::pytorch
