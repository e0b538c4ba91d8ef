// SPDX-License-Identifier: Apache-2.0
//
// What a Task does differently on a device.
#include "python.h"
#include "task.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace xylem::pytorch {

bool Task::belongs_in_stream_order() const noexcept {
  if (opType_ == c10d::OpType::BARRIER) return false;
  if (launch_.parts.empty()) return !launch_.device->blocks(launch_.works);
  return std::ranges::all_of(launch_.parts,
                             [](const TaskPtr& part) { return part->is_in_stream_order_; });
}

void Task::copy_back() noexcept {
  auto state = State::copy_due;
  if (state_.load(std::memory_order_relaxed) != state ||
      !state_.compare_exchange_strong(state, State::copying, std::memory_order_acquire)) {
    return;
  }
  try {
    launch_.device->copy_back(launch_.works, std::exchange(launch_.copies, {}));
  } catch (...) {
    copy_back_error_ = std::current_exception();
  }
  // If the copies took too long, another thread has settled the task meanwhile.
  state = State::copying;
  state_.compare_exchange_strong(state, State::copied, std::memory_order_release);
}

bool Task::copies_ended() const noexcept {
  if (state_.load(std::memory_order_acquire) < State::copied) return false;
  try {
    return (!launch_.device || launch_.device->has_copied()) &&
           std::ranges::all_of(launch_.parts,
                               [](const TaskPtr& part) { return part->copies_ended(); });
  } catch (const std::exception&) {
    return true;  // The device has failed, so nothing is pending on it.
  }
}

void Task::block(const DeviceStream& stream) const {
  blocks_streams_.store(true, std::memory_order_relaxed);
  if (launch_.parts.empty()) return launch_.device->block(stream, launch_.works);
  for (const TaskPtr& part : launch_.parts) part->block(stream);
}

void Task::block_current_stream() {
  if (state_.load(std::memory_order_acquire) >= State::copied && copy_back_error_) {
    std::rethrow_exception(copy_back_error_);
  }
  const DeviceStream current = current_stream(launch_.device->device());
  block(current);
  // Memory that this stream frees is used again only by what the stream does later.
  if (current.torch == launch_.device->stream().torch) drop_kept();
}

Tensors Task::drop_kept() noexcept {
  for (const TaskPtr& part : launch_.parts) part->drop_kept();
  Tensors kept;  // Destroyed by the caller without the lock, since this may need Python's lock.
  const std::lock_guard lock(mutex_);
  kept.swap(launch_.kept);
  return kept;
}

Task::FuturePtr Task::make_future(c10::TypePtr type) const {
  std::vector<c10::Device> devices;
  if (device()) devices.push_back(device()->device());
  return c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
}

Task::FuturePtr Task::future_in_stream_order() {
  const WithoutPython released;  // The driver may wait for room in a stream.
  {
    const std::lock_guard lock(mutex_);
    if (values_) return values_;
  }
  const FuturePtr made = make_future(c10::ListType::ofTensors());
  if (settle_if_ended() || ended()) settle();
  if (is_settled() && exception()) {
    made->setError(exception());
  } else {
    const DeviceStream own = launch_.device->own(OwnStreams::Purpose::follow);
    block(own);
    const c10::StreamGuard guard(own.torch);
    made->markCompleted(c10::IValue(launch_.outputs));
  }
  const std::lock_guard lock(mutex_);
  if (!values_) values_ = made;
  return values_;
}

}  // namespace xylem::pytorch
