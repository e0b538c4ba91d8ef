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
// call. The stream executes later work meanwhile, and waits for the call only at the position of
// Task::wait(). So computation and communication overlap, calls do not wait for each other, and no
// call occupies a stream.
//
// The picture shows a call *in the order of streams*. For any other call, wait() blocks the calling
// thread instead of the stream, and the copies are enqueued on a stream after the call has ended.
// So no stream waits for the call. A call that is captured into a CUDA graph, and the copies, are
// enqueued on the caller's stream. By default (BlockingWait::by_need), a call is not in the order
// of streams if a thread of the host must end it: while a stream waits, some functions of the
// driver block all threads of the process, including the thread that would end the call.
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

/// A copy from `memory` to `tensor`, to be made after the operations of a call have succeeded.
struct OutputCopy {
  at::Tensor memory;
  at::Tensor tensor;
};

/// When wait() for a call on a device blocks the calling thread. Otherwise the current stream
/// waits.
enum class BlockingWait : std::uint8_t {
  by_need,  ///< If a thread of the host must end the call (not Work::runs_on_devices()).
  never,
  always,
};

/// What all calls of a group on devices share.
struct DeviceCaller {
  OwnStreams streams;
  BlockingWait blocking_wait = BlockingWait::by_need;
};

class OnDevice {
 public:
  /// For a call on tensors of `device`. The call begins after the work that this thread has
  /// enqueued on the device's current stream.
  OnDevice(const Communicator& world,
           const c10::Device& device,
           std::shared_ptr<DeviceCaller> caller);
  /// For a call that begins after the work enqueued on `stream`.
  OnDevice(const Communicator& world,
           const DeviceStream& stream,
           std::shared_ptr<DeviceCaller> caller);
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() = default;

  /// The communicator for the call: a call on it begins after the work that was enqueued on the
  /// caller's stream before the call.
  const Communicator& group() const noexcept { return group_; }
  c10::Device device() const noexcept { return stream_.torch.device(); }
  /// The stream that was current at the call.
  const DeviceStream& stream() const noexcept { return stream_; }
  /// Whether wait() for these operations blocks the calling thread instead of a stream.
  bool blocks(const Works& works) const noexcept;

  /// Enqueues the copies on a stream of the group. The stream waits for the operations, unless they
  /// have ended. Torch's allocator records that this stream uses the tensors. If the operations are
  /// captured, the stream is the caller's. Call it at most once.
  void enqueue_copies(const Works& works, const std::vector<OutputCopy>& copies);
  /// Whether the enqueued copies have completed. True if none were enqueued, or if they are
  /// captured.
  bool have_copies_ended() const {
    if (!copies_ended_ || is_captured_) return true;
    const RelaxedCapture relaxed;
    return copies_ended_->query();
  }
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
  bool is_captured_ = false;
};

/// Whether any of the operations is part of a CUDA graph.
bool are_captured(const Works& works) noexcept;

/// Makes a future of this type for a call on tensors of `device`; null means the CPU.
FuturePtr make_future(c10::TypePtr type, const OnDevice* device);

}  // namespace xylem::pytorch
