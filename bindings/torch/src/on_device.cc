// SPDX-License-Identifier: Apache-2.0
#include "on_device.h"

#include "failure.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace xylem::pytorch {
namespace {

void make_stream_wait(const DeviceStream& stream, const Works& works) {
  for (const xylem::Work& work : works) check(work.block(stream.xylem));
}

}  // namespace

OnDevice::OnDevice(const Communicator& world,
                   const c10::Device& device,
                   std::shared_ptr<DeviceCaller> caller)
    : OnDevice(world, current_stream(device), std::move(caller)) {}

OnDevice::OnDevice(const Communicator& world,
                   const DeviceStream& stream,
                   std::shared_ptr<DeviceCaller> caller)
    : group_(world.after(stream.xylem)), stream_(stream), caller_(std::move(caller)) {}

bool OnDevice::blocks(const Works& works) const noexcept {
  switch (caller_->blocking_wait) {
    case BlockingWait::never: return false;
    case BlockingWait::always: return true;
    case BlockingWait::by_need: break;
  }
  return !std::ranges::all_of(works, &xylem::Work::runs_on_devices);
}

void OnDevice::enqueue_copies(const Works& works, const std::vector<OutputCopy>& copies) {
  const bool has_failed = std::ranges::any_of(
      works, [](const xylem::Work& work) { return work.ended() && !work.status(); });
  is_captured_ = are_captured(works);
  if ((copies.empty() && !is_captured_) || has_failed) return;
  const bool have_ended = is_captured_ || std::ranges::all_of(works, &xylem::Work::ended);
  const auto own_stream = [&] {
    if (is_captured_) return stream_;
    return own(have_ended ? OwnStreams::Purpose::prompt : OwnStreams::Purpose::follow);
  }();
  if (!have_ended) make_stream_wait(own_stream, works);
  const c10::StreamGuard guard(own_stream.torch);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::VirtualGuardImpl impl(device().type());
  for (const OutputCopy& copy : copies) {
    impl.recordDataPtrOnStream(copy.memory.storage().data_ptr(), own_stream.torch);
    impl.recordDataPtrOnStream(copy.tensor.storage().data_ptr(), own_stream.torch);
    copy.tensor.copy_(copy.memory, /*non_blocking=*/true);
  }
  c10::Event copies_ended(device().type());
  copies_ended.record(own_stream.torch);
  copies_ended_.emplace(std::move(copies_ended));
}

void OnDevice::block(const DeviceStream& stream, const Works& works) const {
  if (copies_ended_) {
    copies_ended_->block(stream.torch);
  } else {
    make_stream_wait(stream, works);
  }
}

bool are_captured(const Works& works) noexcept {
  return std::ranges::any_of(works, &xylem::Work::is_captured);
}

FuturePtr make_future(c10::TypePtr type, const OnDevice* device) {
  std::vector<c10::Device> devices;
  if (device) devices.push_back(device->device());
  return c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

}  // namespace xylem::pytorch
