// SPDX-License-Identifier: Apache-2.0
//
// One call of the driver. Every exported function first constructs a Call. Its constructor locks
// the mutex, counts the call, makes it fail if a fault is planned, and checks the preconditions of
// the function.
#pragma once

#include "fakes/cuda_driver/driver.h"

#include <functional>
#include <mutex>
#include <string_view>

namespace xylem::fake_cuda {

enum class Needs {
  nothing,
  start,    ///< cuInit has succeeded.
  context,  ///< The thread has a current context, and its device is not lost.
  /// The thread has a current context. Functions that release something need this: they also work
  /// on a lost device, and then return its error by end().
  context_even_if_lost,
};

/// An unsafe call fails while certain streams capture (cuThreadExchangeStreamCaptureMode): it would
/// not be captured, or would wait for commands that do not run.
enum class DuringCapture { safe, unsafe };

class Call {
 public:
  Call(const char* function, Needs needs, DuringCapture during_capture = DuringCapture::safe);

  /// If true, the function must return result() at once.
  bool has_failed() const noexcept { return result_ != CUDA_SUCCESS; }
  CUresult result() const noexcept { return result_; }

  /// Both fail the call. misuse() also counts a misuse.
  CUresult fail(CUresult result) { return result_ = result; }
  CUresult misuse(CUresult result, std::string_view what);
  /// Counts a call of a function or a launch of a kernel. Returns the number so far.
  unsigned long count(const char* name);
  /// Returns true if no pointer is NULL. Otherwise fails the call with CUDA_ERROR_INVALID_VALUE,
  /// and counts a misuse.
  template <typename... Pointers>
  bool has(Pointers*... pointers) {
    if (((pointers != nullptr) && ...)) return true;
    misuse(CUDA_ERROR_INVALID_VALUE, "an argument is NULL");
    return false;
  }

  Driver& driver() const noexcept { return *driver_; }
  Context& context() const noexcept { return *context_; }
  Device& device() const noexcept { return *context_->device; }
  /// The device of the current context; nullptr if there is no current context.
  const Device* current_device() const noexcept {
    return context_ == nullptr ? nullptr : context_->device;
  }

  /// These functions look up an argument. If it is invalid, they fail the call and return nullptr.
  Device* device_at(CUdevice ordinal);
  StreamPtr stream(CUstream handle);
  /// Like stream(), for calls that enqueue nothing on the stream.
  StreamPtr any_stream(CUstream handle);
  std::shared_ptr<Event> event(CUevent handle);
  std::shared_ptr<Context> context_of(CUcontext handle);

  /// If the stream captures, fails the call, invalidates the capture and returns true.
  bool is_refused_by_capture(const Stream& stream);
  /// Fails the call, and invalidates the capture.
  CUresult invalidate(const CapturePtr& capture, CUresult result, std::string_view what);

  /// Waits for commands. If the device is lost, returns the reason. It waits in this case, too: the
  /// commands end soon, but may still be using memory of the caller.
  CUresult wait(const std::vector<CommandPtr>& commands, const Device& device);
  /// Waits until `holds` returns true, which another process may cause, or until the device is
  /// lost.
  CUresult wait_until(const std::function<bool()>& holds, const Device& device);
  /// Waits for all commands that were issued on a device.
  CUresult wait_for_idle(const Device& device);
  /// Like wait_for_idle(). Meanwhile, it blocks calls of other threads with the same current
  /// context.
  CUresult hold_until_idle(const Device& device);
  /// Returns CUDA_SUCCESS, or the reason for which the device is lost.
  CUresult end() { return result_ = context_->device->lost; }
  std::unique_lock<std::mutex>& lock() noexcept { return lock_; }

 private:
  bool fails_by_plan(unsigned long number);
  void check_context(Needs needs);
  void check_captures();

  const char* function_;
  std::unique_lock<std::mutex> lock_;
  Driver* driver_;
  std::shared_ptr<Context> context_;
  CUresult result_ = CUDA_SUCCESS;
};

/// A number that identifies this thread. No other thread has had the same number.
std::uint64_t thread_number();

/// True if this thread's calls are not counted, and no planned fault affects them.
bool& is_thread_exempt();

/// How this thread's calls interact with captures.
CUstreamCaptureMode& capture_mode_of_thread();

/// The stack of contexts of this thread. The last one is current. The type has no destructor, so
/// the library can be unloaded while threads exist.
struct ContextStack {
  static constexpr std::size_t kMost = 32;
  CUcontext contexts[kMost] = {};
  std::size_t count = 0;
  CUcontext top() const noexcept { return count == 0 ? nullptr : contexts[count - 1]; }
};
ContextStack& context_stack();

/// While an object of this class exists, calls of this thread count as calls from a host function.
class InHostFunction {
 public:
  InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  ~InHostFunction();
};

}  // namespace xylem::fake_cuda
