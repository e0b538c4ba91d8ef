// SPDX-License-Identifier: Apache-2.0
//
// What a Task does differently on a device.
#include "python.h"
#include "task.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace xylem::pytorch {

bool Task::is_in_stream_order() const noexcept {
  return begun_.device && !begun_.device->blocks() && name_.type != c10d::OpType::BARRIER;
}

void Task::land() noexcept {
  try {
    const std::vector<Landing> landings = std::exchange(begun_.landings, {});
    for (const Landing& landing : landings) begun_.kept.push_back(landing.memory);
    begun_.device->land(begun_.works, landings);
  } catch (...) {
    unlanded_ = std::current_exception();
  }
}

bool Task::has_landed() const noexcept {
  try {
    return (!begun_.device || begun_.device->has_landed()) &&
           std::ranges::all_of(begun_.parts,
                               [](const TaskPtr& part) { return part->has_landed(); });
  } catch (const std::exception&) {
    return true;  // The device has failed, so nothing is pending on it.
  }
}

void Task::wait_for_landing(Deadline deadline) const noexcept {
  // The copies follow operations that have ended, so they take little time.
  constexpr std::chrono::microseconds kPause{20};
  while (works_ended() && !has_landed() && !deadline.passed()) {
    std::this_thread::sleep_for(kPause);
  }
}

void Task::block(const DeviceStream& stream) const {
  blocks_streams_.store(true, std::memory_order_relaxed);
  if (begun_.parts.empty()) return begun_.device->block(stream, begun_.works);
  for (const TaskPtr& part : begun_.parts) part->block(stream);
}

void Task::block_current_stream() {
  if (unlanded_) std::rethrow_exception(unlanded_);
  const DeviceStream current = current_stream(begun_.device->device());
  block(current);
  // Memory that this stream gives back is used again only by what the stream does later.
  if (current.torch == begun_.device->stream().torch) drop_kept();
}

void Task::drop_kept() noexcept {
  for (const TaskPtr& part : begun_.parts) part->drop_kept();
  Tensors kept;  // Destroyed after the lock is released, as in settle().
  const std::lock_guard lock(settling_);
  kept.swap(begun_.kept);
}

Task::FuturePtr Task::make_future(c10::TypePtr type) const {
  std::vector<c10::Device> devices;
  if (begun_.device) devices.push_back(begun_.device->device());
  return c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

Task::FuturePtr Task::future_in_stream_order() {
  const WithoutPython released;  // The driver may wait for room in a stream.
  {
    const std::lock_guard lock(settling_);
    if (values_) return values_;
  }
  const FuturePtr made = make_future(c10::ListType::ofTensors());
  if (settle_if_ended() && exception()) {
    made->setError(exception());
  } else {
    const DeviceStream own = begun_.device->own(OwnStreams::Purpose::follow);
    block(own);
    const c10::StreamGuard guard(own.torch);
    made->markCompleted(c10::IValue(begun_.outputs));
  }
  const std::lock_guard lock(settling_);
  if (!values_) values_ = made;
  return values_;
}

}  // namespace xylem::pytorch
