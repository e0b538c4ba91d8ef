// SPDX-License-Identifier: Apache-2.0
#include "cuda/call_events.h"

namespace xylem::execution::cuda {

Status CallEvents::create() {
  for (CUevent& end : ends_) XYLEM_TRY(create(end));
  XYLEM_TRY(create(begin_));
  return create(captured_);
}

Status CallEvents::create(CUevent& event) const {
  return driver_.check(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void CallEvents::destroy() noexcept {
  for (const CUevent event : ends_) destroy(event);
  destroy(begin_);
  destroy(captured_);
}

void CallEvents::destroy(CUevent event) const noexcept {
  if (event != nullptr) driver_.cuEventDestroy(event);
}

Status CallEvents::follow(CUstream stream, unsigned long long id, CUstream caller) {
  // Only record() changes `last_`, and is not called at the same time as follow().
  mutex_.assume_unchanging();
  if (last_ > 0 && id != last_stream_) XYLEM_TRY(wait(stream, end_of(last_)));
  last_stream_ = id;
  if (stream == caller) return {};
  XYLEM_TRY(driver_.check(driver_.cuEventRecord(begin_, caller), "cuEventRecord"));
  return wait(stream, begin_);
}

Status CallEvents::follow_captured(CUstream stream, cuuint64_t capture) {
  return last_capture_ == capture ? wait(stream, captured_) : Status();
}

Status CallEvents::record_captured(CUstream stream, cuuint64_t capture) {
  last_capture_ = capture;
  return driver_.check(driver_.cuEventRecord(captured_, stream), "cuEventRecord");
}

Status CallEvents::record(CUstream stream, std::uint64_t number) {
  const Lock lock(mutex_);
  XYLEM_TRY(driver_.check(driver_.cuEventRecord(end_of(number), stream), "cuEventRecord"));
  last_ = number;
  return {};
}

Result<bool> CallEvents::wait_for(CUstream stream, std::uint64_t number) {
  const Lock lock(mutex_);
  if (number > last_ || number + kKnownCalls <= last_) return false;
  XYLEM_TRY(wait(stream, end_of(number)));
  return true;
}

Status CallEvents::wait(CUstream stream, CUevent event) const {
  return driver_.check(driver_.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT),
                       "cuStreamWaitEvent");
}

}  // namespace xylem::execution::cuda
