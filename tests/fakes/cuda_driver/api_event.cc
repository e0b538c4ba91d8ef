// SPDX-License-Identifier: Apache-2.0
//
// Events, including those that processes share. A stream that waits for a shared event occupies its
// hardware queue, and polls the event's page.
#include "fakes/cuda_driver/call.h"
#include "fakes/cuda_driver/ipc.h"

#include <unistd.h>

namespace xylem::fake_cuda {
namespace {

bool is_done(const Event& event) {
  if (event.shared != nullptr) return event.shared->is_done(event.shared->newest());
  return event.record == nullptr || event.record->is_done;
}

void record(Call& call, Stream& stream, Event& event) {
  event.capture = stream.capture;
  event.captured = stream.newest;
  if (stream.capture != nullptr) return;
  if (event.shared == nullptr) {
    event.record = enqueue(call.driver(), stream, {});
    return;
  }
  const auto shared = event.shared;
  event.record = enqueue(call.driver(), stream, [shared, number = shared->record()](const Run&) {
    shared->complete(number);
  });
  // Otherwise, other processes would wait forever after the loss of this device.
  event.record->runs_on_lost_device = true;
}

/// Makes `stream` wait for `event`, where the stream captures or the event was recorded in a
/// capture.
CUresult wait_in_capture(Call& call, const StreamPtr& stream, const Event& event) {
  const CapturePtr& theirs = event.capture;
  if (theirs == nullptr) {
    return call.invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                           "the event was not recorded in the capture");
  }
  if (stream->capture != nullptr && stream->capture != theirs) {
    theirs->is_invalid = true;
    return call.invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE,
                           "the event was recorded in another capture");
  }
  if (theirs->streams.empty()) {
    return call.misuse(CUDA_ERROR_CAPTURED_EVENT, "the capture of the event has ended");
  }
  if (theirs->is_invalid) return call.fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (stream == stream->context->legacy) {
    return call.invalidate(theirs, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                           "the NULL stream cannot capture");
  }
  join_capture(stream, theirs, event.captured);
  return CUDA_SUCCESS;
}

/// If the newest record of the event was captured, fails the call and invalidates the capture.
bool is_captured(Call& call, const Event& event) {
  if (event.capture == nullptr) return false;
  call.invalidate(event.capture, CUDA_ERROR_CAPTURED_EVENT, "the event was captured");
  return true;
}

void wait_in(Call& call, Stream& stream, const Event& event) {
  if (event.shared == nullptr) {
    if (event.record != nullptr) enqueue(call.driver(), stream, {}, {event.record});
    return;
  }
  const auto shared = event.shared;
  const auto wait = [shared, number = shared->newest()](const Run& run) {
    for (unsigned tries = 0; !run.is_aborted() && !shared->is_done(number); ++tries) {
      run.pause(tries);
    }
  };
  enqueue(call.driver(), stream, wait, {}, true);
}

std::shared_ptr<Event> make_event(Call& call, unsigned flags) {
  auto event = std::make_shared<Event>();
  event->context = &call.context();
  event->flags = flags;
  return event;
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool is_shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if ((flags & ~kKnown) != 0 || (is_shared && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags that do not exist or do not go together");
  }
  const auto event = make_event(call, flags);
  if (is_shared) {
    event->shared = SharedEvent::make();
    if (event->shared == nullptr) return call.fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  *handle = call.driver().events.add(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  Call call(__func__, Needs::context_even_if_lost);
  if (call.has_failed()) return call.result();
  const auto event = call.event(handle);
  if (event == nullptr) return call.result();
  call.driver().events.remove(handle);
  return call.fail(event->context->device->lost);
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(stream_handle);
  if (stream == nullptr) return call.result();
  const auto event = call.event(handle);
  if (event == nullptr) return call.result();
  if (event->context != stream->context) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "event and stream have different contexts");
  }
  if (event->shared != nullptr && call.is_refused_by_capture(*stream)) return call.result();
  record(call, *stream, *event);
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto event = call.event(handle);
  if (event == nullptr) return call.result();
  if (is_captured(call, *event)) return call.result();
  if (event->context->device->lost != CUDA_SUCCESS) return event->context->device->lost;
  return is_done(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const auto event = call.event(handle);
  if (event == nullptr) return call.result();
  if (is_captured(call, *event)) return call.result();
  if (event->shared == nullptr) return call.wait({event->record}, *event->context->device);
  const std::uint64_t number = event->shared->newest();
  return call.wait_until([&] { return event->shared->is_done(number); }, *event->context->device);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  const auto event = call.event(event_handle);
  if (event == nullptr) return call.result();
  if (flags != 0) return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
  if (stream->capture != nullptr || event->capture != nullptr) {
    return wait_in_capture(call, stream, *event);
  }
  wait_in(call, *stream, *event);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(handle)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const auto event = call.event(event_handle);
  if (event == nullptr) return call.result();
  if (event->shared == nullptr || event->was_opened) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "no event of this process with INTERPROCESS");
  }
  give_key(key_of(event->shared->file()), *handle);
  return CUDA_SUCCESS;
}

// As with memory, the exporting process cannot open its own handle.
CUresult cuIpcOpenEventHandle(CUevent* handle, CUipcEventHandle of) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed() || !call.has(handle)) return call.result();
  if (!call.driver().settings.has_ipc) return call.fail(CUDA_ERROR_NOT_SUPPORTED);
  const IpcKey key = take_key(of);
  if (key.pid == getpid()) {
    return call.misuse(CUDA_ERROR_INVALID_CONTEXT, "this process exported the handle");
  }
  const int file = open_file(key);
  if (file < 0) return call.misuse(CUDA_ERROR_INVALID_HANDLE, "the event is gone");
  const auto event = make_event(call, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  event->shared = SharedEvent::open(file);
  event->was_opened = true;
  if (event->shared == nullptr) return call.fail(CUDA_ERROR_MAP_FAILED);
  *handle = call.driver().events.add(event);
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
