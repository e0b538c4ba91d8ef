// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/call.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace xylem::fake_cuda {
namespace {

thread_local bool is_in_host_function = false;

/// A number for this thread that no other thread has had.
std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local std::uint64_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

StreamPtr own_stream(Context& context) {
  StreamPtr& stream = context.own[thread_number()];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>();
    stream->handle = CU_STREAM_PER_THREAD;
    stream->context = &context;
    Device& device = *context.device;
    stream->queue = device.queues[device.streams_made++ % device.queues.size()].get();
  }
  return stream;
}

}  // namespace

ContextStack& context_stack() {
  thread_local ContextStack stack;
  return stack;
}

InHostFunction::InHostFunction() { is_in_host_function = true; }
InHostFunction::~InHostFunction() { is_in_host_function = false; }

Call::Call(const char* function, Needs needs)
    : function_(function), lock_(driver_mutex()), driver_(current_driver()) {
  if (driver_ == nullptr) {
    result_ = CUDA_ERROR_DEINITIALIZED;
    return;
  }
  auto calls = driver_->calls.find(std::string_view(function));
  if (calls == driver_->calls.end()) calls = driver_->calls.emplace(function, 0).first;
  ++calls->second;
  if (is_in_host_function) {
    misuse(CUDA_ERROR_NOT_PERMITTED, "called by a host function");
  } else if (needs != Needs::nothing && !driver_->is_initialised) {
    misuse(CUDA_ERROR_NOT_INITIALIZED, "called before cuInit");
  } else {
    context_ = driver_->contexts.find(context_stack().top());
    if (!fails_by_plan(calls->second)) check_context(needs);
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
  } else if (needs == Needs::context) {
    result_ = context_->device->lost;
  }
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

}  // namespace xylem::fake_cuda
