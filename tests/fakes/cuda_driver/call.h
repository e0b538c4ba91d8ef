// SPDX-License-Identifier: Apache-2.0
//
// One call of the driver. Every function begins with a Call, which takes the mutex, counts the
// call, looks whether it is to fail by the plan of faults, and checks what the function needs.
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
  /// The thread has a current context. For functions that release something: they do so on a lost
  /// device too, and return its error by end().
  context_even_if_lost,
};

/// A call that is unsafe may not be made while some streams capture, since it would not be captured
/// or waits for what does not run (cuThreadExchangeStreamCaptureMode).
enum class DuringCapture { safe, unsafe };

class Call {
 public:
  Call(const char* function, Needs needs, DuringCapture during_capture = DuringCapture::safe);

  /// The function must return result() at once.
  bool has_failed() const noexcept { return result_ != CUDA_SUCCESS; }
  CUresult result() const noexcept { return result_; }

  /// Fails the call, without and with counting it as misuse.
  CUresult fail(CUresult result) { return result_ = result; }
  CUresult misuse(CUresult result, std::string_view what);
  /// Counts a call of a function, or a launch of a kernel. Returns how many there were.
  unsigned long count(const char* name);
  /// CUDA_ERROR_INVALID_VALUE, counted as misuse, for a NULL where the result belongs.
  template <typename... Pointers>
  bool has(Pointers*... pointers) {
    if (((pointers != nullptr) && ...)) return true;
    misuse(CUDA_ERROR_INVALID_VALUE, "an argument is NULL");
    return false;
  }

  Driver& driver() const noexcept { return *driver_; }
  Context& context() const noexcept { return *context_; }
  Device& device() const noexcept { return *context_->device; }
  /// nullptr without a current context.
  const Device* current_device() const noexcept {
    return context_ == nullptr ? nullptr : context_->device;
  }

  /// These return nullptr, and have then failed, if the argument is not valid.
  Device* device_at(CUdevice ordinal);
  StreamPtr stream(CUstream handle);
  /// As stream(), for calls that give the stream nothing to do.
  StreamPtr any_stream(CUstream handle);
  std::shared_ptr<Event> event(CUevent handle);
  std::shared_ptr<Context> context_of(CUcontext handle);

  /// Fails the call if the stream captures, and with it the capture.
  bool is_refused_by_capture(const Stream& stream);
  /// Fails the call, and what is being captured.
  CUresult invalidate(const CapturePtr& capture, CUresult result, std::string_view what);

  /// Waits for commands, and returns why the device is lost if it is. Then its commands end soon,
  /// but one may still be using memory of the caller, so this waits for them all the same.
  CUresult wait(const std::vector<CommandPtr>& commands, const Device& device);
  /// Waits for something that other processes may bring about, or until the device is lost.
  CUresult wait_until(const std::function<bool()>& holds, const Device& device);
  /// Waits for everything that was issued on a device.
  CUresult wait_for_idle(const Device& device);
  /// The same, and until then the calls of all other threads wait that have the same current
  /// context.
  CUresult hold_until_idle(const Device& device);
  /// CUDA_SUCCESS, or why the device is lost.
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

/// A number for this thread that no other thread has had.
std::uint64_t thread_number();

/// Whether this thread's calls are not counted, and do not fail by plan.
bool& is_thread_exempt();

/// How this thread's calls interact with captures.
CUstreamCaptureMode& capture_mode_of_thread();

/// The contexts of this thread; the last one is current. It has no destructor, so that the library
/// can be unloaded while threads live.
struct ContextStack {
  static constexpr std::size_t kMost = 32;
  CUcontext contexts[kMost] = {};
  std::size_t count = 0;
  CUcontext top() const noexcept { return count == 0 ? nullptr : contexts[count - 1]; }
};
ContextStack& context_stack();

/// While this exists, calls by this thread come from a host function.
class InHostFunction {
 public:
  InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  ~InHostFunction();
};

}  // namespace xylem::fake_cuda
