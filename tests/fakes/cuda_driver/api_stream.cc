// SPDX-License-Identifier: Apache-2.0
//
// Streams and host functions.
#include "fakes/cuda_driver/call.h"

#include <algorithm>

namespace xylem::fake_cuda {
namespace {

CUresult make_stream(Call& call, CUstream* handle, unsigned flags, int priority) {
  if (!call.has(handle)) return call.result();
  if ((flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "flags that do not exist");
  }
  auto stream = std::make_shared<Stream>();
  stream->context = &call.context();
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, 0);
  *handle = stream->handle = call.driver().streams.add(stream);
  return CUDA_SUCCESS;
}

/// Returns the commands that must complete before a stream is idle. For the NULL stream, these
/// include the commands of all blocking streams.
std::vector<CommandPtr> pending(Call& call, Stream& stream) {
  if (&stream != stream.context->legacy.get()) return {stream.last};
  return {enqueue(call.driver(), stream, {})};
}

bool is_idle(Call& call, const Stream& stream) {
  const auto is_done = [](const CommandPtr& last) { return last == nullptr || last->is_done; };
  if (!is_done(stream.last)) return false;
  if (&stream != stream.context->legacy.get()) return true;
  const Handles<CUstream, Stream>& streams = call.driver().streams;
  return std::all_of(streams.begin(), streams.end(), [&](const auto& entry) {
    const Stream& other = *entry.second;
    return other.context != stream.context || !other.is_blocking() || is_done(other.last);
  });
}

}  // namespace
}  // namespace xylem::fake_cuda

using namespace xylem::fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {
// NVIDIA defines these names.
// NOLINTBEGIN(readability-identifier-naming)

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : make_stream(call, handle, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  Call call(__func__, Needs::context);
  return call.has_failed() ? call.result() : make_stream(call, handle, flags, priority);
}

// Commands that were enqueued still run. If the stream captures, the capture becomes invalid.
CUresult cuStreamDestroy(CUstream handle) {
  Call call(__func__, Needs::context_even_if_lost);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.driver().streams.find(handle);
  if (stream == nullptr) {
    return call.misuse(CUDA_ERROR_INVALID_HANDLE, "this is no stream, or it was destroyed");
  }
  if (const CapturePtr capture = stream->capture) {
    capture->is_invalid = true;
    // Only this stream could have ended the capture, so it is dropped.
    if (capture->streams.front() == stream) drop_capture(call.driver(), capture);
  }
  if (stream->is_blocking() && stream->last != nullptr && !stream->last->is_done) {
    stream->context->of_destroyed_streams.push_back(stream->last);
  }
  call.driver().streams.remove(handle);
  return call.fail(stream->context->device->lost);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(id)) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  *id = stream->number;
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  if (call.is_refused_by_capture(*stream)) return call.result();
  return is_idle(call, *stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Call call(__func__, Needs::context, DuringCapture::unsafe);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  if (call.is_refused_by_capture(*stream)) return call.result();
  return call.wait(pending(call, *stream), *stream->context->device);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(context)) return call.result();
  const StreamPtr stream = call.any_stream(handle);
  if (stream != nullptr) *context = stream->context->handle;
  return call.result();
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(priority)) return call.result();
  const StreamPtr stream = call.any_stream(handle);
  if (stream != nullptr) *priority = stream->priority;
  return call.result();
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed() || !call.has(flags)) return call.result();
  const StreamPtr stream = call.any_stream(handle);
  if (stream != nullptr) *flags = stream->flags;
  return call.result();
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  if (function == nullptr) return call.misuse(CUDA_ERROR_INVALID_VALUE, "no function");
  enqueue(call.driver(), *stream, [function, data](const Run&) {
    const InHostFunction scope;
    function(data);
  });
  return CUDA_SUCCESS;
}

// Unlike a host function, a callback also runs if the device is lost. It then gets the error.
CUresult cuStreamAddCallback(CUstream handle,
                             CUstreamCallback function,
                             void* data,
                             unsigned flags) {
  Call call(__func__, Needs::context);
  if (call.has_failed()) return call.result();
  const StreamPtr stream = call.stream(handle);
  if (stream == nullptr) return call.result();
  if (call.is_refused_by_capture(*stream)) return call.result();
  if (function == nullptr || flags != 0) {
    return call.misuse(CUDA_ERROR_INVALID_VALUE, "no function, or flags that are not 0");
  }
  const auto command = enqueue(call.driver(), *stream, [function, data, handle](const Run& run) {
    const InHostFunction scope;
    function(handle, run.device().lost, data);
  });
  command->runs_on_lost_device = true;
  return CUDA_SUCCESS;
}

// NOLINTEND(readability-identifier-naming)
}  // extern "C"
