// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/call.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace xylem::fake_cuda {
namespace {

thread_local bool is_in_host_function = false;

StreamPtr own_stream(Context& context) {
  StreamPtr& stream = context.own[thread_number()];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>();
    stream->handle = CU_STREAM_PER_THREAD;
    stream->context = &context;
  }
  return stream;
}

}  // namespace

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local std::uint64_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

bool& is_thread_exempt() {
  thread_local bool is_exempt = false;
  return is_exempt;
}

CUstreamCaptureMode& capture_mode_of_thread() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

ContextStack& context_stack() {
  thread_local ContextStack stack;
  return stack;
}

InHostFunction::InHostFunction() { is_in_host_function = true; }
InHostFunction::~InHostFunction() { is_in_host_function = false; }

unsigned long Call::count(const char* name) {
  auto calls = driver_->calls.find(std::string_view(name));
  if (calls == driver_->calls.end()) calls = driver_->calls.emplace(name, 0).first;
  return is_thread_exempt() ? calls->second : ++calls->second;
}

Call::Call(const char* function, Needs needs, DuringCapture during_capture)
    : function_(function), lock_(driver_mutex()), driver_(current_driver()) {
  if (driver_ == nullptr) {
    result_ = CUDA_ERROR_DEINITIALIZED;
    return;
  }
  const unsigned long calls = count(function);
  if (is_in_host_function) {
    misuse(CUDA_ERROR_NOT_PERMITTED, "called by a host function");
  } else if (needs != Needs::nothing && !driver_->is_initialised) {
    misuse(CUDA_ERROR_NOT_INITIALIZED, "called before cuInit");
  } else {
    context_ = driver_->contexts.find(context_stack().top());
    if (is_thread_exempt() || !fails_by_plan(calls)) check_context(needs);
    if (!has_failed() && during_capture == DuringCapture::unsafe) check_captures();
  }
}

bool Call::fails_by_plan(unsigned long number) {
  for (const Fault& fault : driver_->settings.faults) {
    if (fault.call != number || fault.function != function_) continue;
    if (is_device_lost(fault.result) && !driver_->devices.empty()) {
      (context_ != nullptr ? *context_->device : *driver_->devices[0]).lose(fault.result);
    }
    result_ = fault.result;
    return true;
  }
  return false;
}

void Call::check_context(Needs needs) {
  if (needs != Needs::context && needs != Needs::context_even_if_lost) return;
  if (context_ == nullptr) {
    const bool had_one = context_stack().top() != nullptr;
    misuse(had_one ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT,
           had_one ? "the current context was destroyed" : "the thread has no current context");
    return;
  }
  driver_changed().wait(
      lock_, [&] { return context_->held_by == 0 || context_->held_by == thread_number(); });
  if (needs == Needs::context) result_ = context_->device->lost;
}

void Call::check_captures() {
  const CUstreamCaptureMode mode = capture_mode_of_thread();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  for (const CapturePtr& capture : driver_->captures) {
    const bool is_own = capture->thread == thread_number();
    const bool is_global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if ((is_own && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
        (!is_own && is_global && mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not while a stream captures");
    }
  }
}

CUresult Call::invalidate(const CapturePtr& capture, CUresult result, std::string_view what) {
  capture->is_invalid = true;
  return misuse(result, what);
}

bool Call::is_refused_by_capture(const Stream& stream) {
  if (stream.capture == nullptr) return false;
  invalidate(stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream captures");
  return true;
}

CUresult Call::misuse(CUresult result, std::string_view what) {
  driver_->count_misuse(function_, what);
  return result_ = result;
}

Device* Call::device_at(CUdevice ordinal) {
  if (ordinal >= 0 && static_cast<std::size_t>(ordinal) < driver_->devices.size()) {
    return driver_->devices[static_cast<std::size_t>(ordinal)].get();
  }
  misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device " + std::to_string(ordinal));
  return nullptr;
}

StreamPtr Call::stream(CUstream handle) {
  const StreamPtr stream = any_stream(handle);
  if (stream == nullptr) return nullptr;
  if (stream->capture != nullptr && stream->capture->is_invalid) {
    fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return nullptr;
  }
  if (stream != stream->context->legacy) return stream;
  const CapturePtr blocking = capture_of_blocking_stream(*driver_, *stream->context);
  if (blocking == nullptr) return stream;
  invalidate(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
             "the NULL stream would wait for a stream that captures");
  return nullptr;
}

StreamPtr Call::any_stream(CUstream handle) {
  StreamPtr stream;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    stream = context_->legacy;
  } else if (handle == CU_STREAM_PER_THREAD) {
    stream = own_stream(*context_);
  } else {
    stream = driver_->streams.find(handle);
  }
  if (stream == nullptr) {
    misuse(CUDA_ERROR_INVALID_HANDLE, "this is no stream, or it was destroyed");
  } else if (stream->context->device->lost != CUDA_SUCCESS) {
    fail(stream->context->device->lost);
    stream = nullptr;
  }
  return stream;
}

std::shared_ptr<Event> Call::event(CUevent handle) {
  std::shared_ptr<Event> event = driver_->events.find(handle);
  if (event == nullptr) misuse(CUDA_ERROR_INVALID_HANDLE, "this is no event, or it was destroyed");
  return event;
}

std::shared_ptr<Context> Call::context_of(CUcontext handle) {
  std::shared_ptr<Context> context = driver_->contexts.find(handle);
  if (context == nullptr) {
    misuse(CUDA_ERROR_INVALID_CONTEXT, "this is no context, or it was destroyed");
  }
  return context;
}

CUresult Call::wait(const std::vector<CommandPtr>& commands, const Device& device) {
  driver_changed().wait(lock_, [&] {
    return std::all_of(commands.begin(), commands.end(), [](const CommandPtr& command) {
      return command == nullptr || command->is_done;
    });
  });
  return result_ = device.lost;
}

CUresult Call::wait_until(const std::function<bool()>& holds, const Device& device) {
  while (!holds() && device.lost == CUDA_SUCCESS) {
    driver_changed().wait_for(lock_, std::chrono::microseconds(200));
  }
  return result_ = device.lost;
}

CUresult Call::wait_for_idle(const Device& device) {
  return wait(device.newest_commands(), device);
}

CUresult Call::hold_until_idle(const Device& device) {
  context_->held_by = thread_number();
  wait_for_idle(device);
  context_->held_by = 0;
  driver_changed().notify_all();
  return result_;
}

}  // namespace xylem::fake_cuda
