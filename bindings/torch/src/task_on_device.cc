// SPDX-License-Identifier: Apache-2.0
//
// The members of Task that concern devices.
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

bool Task::belongs_in_stream_order() const noexcept {
  if (is_captured()) return true;
  if (!begun_.device || name_.type == c10d::OpType::BARRIER) return false;
  if (begun_.parts.empty()) return !begun_.device->blocks(begun_.works);
  return std::ranges::all_of(begun_.parts,
                             [](const TaskPtr& part) { return part->is_in_stream_order_; });
}

bool Task::is_captured() const noexcept { return begun_.device && are_captured(begun_.works); }

void Task::enqueue_copies() noexcept {
  auto state = CopyState::due;
  if (!copy_state_.compare_exchange_strong(state, CopyState::enqueuing,
                                           std::memory_order_acquire)) {
    return;
  }
  try {
    const std::vector<OutputCopy> copies = std::exchange(begun_.copies, {});
    begun_.device->enqueue_copies(begun_.works, copies);
  } catch (...) {
    copy_error_ = std::current_exception();
  }
  copy_state_.store(CopyState::enqueued, std::memory_order_release);
}

void Task::enqueue_copies_if_ended() noexcept {
  for (const TaskPtr& part : begun_.parts) part->enqueue_copies_if_ended();
  if (copy_state_.load(std::memory_order_relaxed) == CopyState::due && works_ended())
    enqueue_copies();
}

std::exception_ptr Task::copy_error() const noexcept {
  const bool is_known = copy_state_.load(std::memory_order_acquire) == CopyState::enqueued;
  return is_known ? copy_error_ : nullptr;
}

bool Task::have_copies_ended() const noexcept {
  if (copy_state_.load(std::memory_order_acquire) != CopyState::enqueued) return false;
  try {
    return (!begun_.device || begun_.device->have_copies_ended()) &&
           std::ranges::all_of(begun_.parts,
                               [](const TaskPtr& part) { return part->have_copies_ended(); });
  } catch (const std::exception&) {
    return true;  // The device has failed, so nothing is pending on it.
  }
}

void Task::wait_for_copies(Deadline deadline) noexcept {
  // The copies follow operations that have ended, so they take little time.
  constexpr std::chrono::microseconds kPause{20};
  while (works_ended()) {
    enqueue_copies_if_ended();
    if (have_copies_ended() || deadline.passed()) return;
    std::this_thread::sleep_for(kPause);
  }
}

void Task::block(const DeviceStream& stream) const {
  has_stream_waiters_.store(true, std::memory_order_relaxed);
  if (begun_.parts.empty()) return begun_.device->block(stream, begun_.works);
  for (const TaskPtr& part : begun_.parts) part->block(stream);
}

void Task::make_current_stream_wait() {
  if (copy_error_) std::rethrow_exception(copy_error_);
  const DeviceStream current = current_stream(begun_.device->device());
  block(current);
  // Torch's allocator reuses memory that was allocated on this stream only for later work of the
  // stream. So the task need not hold this memory.
  if (current.torch == begun_.device->stream().torch) drop_kept();
}

void Task::drop_kept() noexcept {
  for (const TaskPtr& part : begun_.parts) part->drop_kept();
  Tensors kept;  // Destroyed after the lock is released, as in settle().
  const Lock lock(settling_);
  kept.swap(begun_.kept);
}

FuturePtr Task::future_in_stream_order() {
  const WithoutPython released;  // The driver may block while the stream's queue is full.
  {
    const Lock lock(settling_);
    if (futures_.values) return futures_.values;
  }
  const FuturePtr made = make_future(c10::ListType::ofTensors(), begun_.device.get());
  if (settle_if_ended() && exception()) {
    made->setError(exception());
  } else {
    const DeviceStream own =
        is_captured() ? begun_.device->stream() : begun_.device->own(OwnStreams::Purpose::follow);
    block(own);
    const c10::StreamGuard guard(own.torch);
    made->markCompleted(c10::IValue(begun_.outputs));
  }
  const Lock lock(settling_);
  if (!futures_.values) futures_.values = made;
  return futures_.values;
}

}  // namespace xylem::pytorch
