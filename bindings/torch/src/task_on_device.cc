// SPDX-License-Identifier: Apache-2.0
//
// The parts of Task that concern devices.
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
  if (!begun_.device || name_.type == c10d::OpType::BARRIER) return false;
  if (begun_.parts.empty()) return !begun_.device->blocks(begun_.works);
  return std::ranges::all_of(begun_.parts,
                             [](const TaskPtr& part) { return part->is_in_stream_order_; });
}

void Task::land() noexcept {
  auto state = Landed::due;
  if (!landed_.compare_exchange_strong(state, Landed::being_given, std::memory_order_acquire)) {
    return;
  }
  try {
    const std::vector<Landing> landings = std::exchange(begun_.landings, {});
    begun_.device->land(begun_.works, landings);
  } catch (...) {
    unlanded_ = std::current_exception();
  }
  landed_.store(Landed::given, std::memory_order_release);
}

void Task::land_if_ended() noexcept {
  for (const TaskPtr& part : begun_.parts) part->land_if_ended();
  if (landed_.load(std::memory_order_relaxed) == Landed::due && works_ended()) land();
}

std::exception_ptr Task::landing_error() const noexcept {
  const bool is_known = landed_.load(std::memory_order_acquire) == Landed::given;
  return is_known ? unlanded_ : nullptr;
}

bool Task::has_landed() const noexcept {
  if (landed_.load(std::memory_order_acquire) != Landed::given) return false;
  try {
    return (!begun_.device || begun_.device->has_landed()) &&
           std::ranges::all_of(begun_.parts,
                               [](const TaskPtr& part) { return part->has_landed(); });
  } catch (const std::exception&) {
    return true;  // The device has failed, so nothing is pending on it.
  }
}

void Task::wait_for_landing(Deadline deadline) noexcept {
  // The copies follow operations that have ended, so they take little time.
  constexpr std::chrono::microseconds kPause{20};
  while (works_ended()) {
    land_if_ended();
    if (has_landed() || deadline.passed()) return;
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
  // Memory that is freed on this stream is reused only by later work of the stream.
  if (current.torch == begun_.device->stream().torch) drop_kept();
}

void Task::drop_kept() noexcept {
  for (const TaskPtr& part : begun_.parts) part->drop_kept();
  Tensors kept;  // Destroyed after the lock is released, as in settle().
  const Lock lock(settling_);
  kept.swap(begun_.kept);
}

FuturePtr Task::future_in_stream_order() {
  const WithoutPython released;  // The driver may wait for room in a stream.
  {
    const Lock lock(settling_);
    if (futures_.values) return futures_.values;
  }
  const FuturePtr made = make_future(c10::ListType::ofTensors(), begun_.device.get());
  if (settle_if_ended() && exception()) {
    made->setError(exception());
  } else {
    const DeviceStream own = begun_.device->own(OwnStreams::Purpose::follow);
    block(own);
    const c10::StreamGuard guard(own.torch);
    made->markCompleted(c10::IValue(begun_.outputs));
  }
  const Lock lock(settling_);
  if (!futures_.values) futures_.values = made;
  return futures_.values;
}

}  // namespace xylem::pytorch
