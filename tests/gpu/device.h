// SPDX-License-Identifier: Apache-2.0
//
// One CUDA device over the driver that CUDA_DRIVER names, for programs that examine the behaviour
// of a driver. An unexpected error of the driver ends the program.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace xylem::test::gpu {

using execution::cuda::Driver;

/// Device 0 with its primary context. The context is current for the thread that makes the object.
class Device {
 public:
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() = default;  // Frees nothing: a waiting stream may use it.

  const Driver& driver() const noexcept { return *driver_; }
  /// The functions that may block until streams have finished. These programs call them to find out
  /// whether they do.
  const execution::cuda::BlockingDriver& blocking() const noexcept {
    return driver_->blocking(execution::cuda::MayWait{});
  }
  CUcontext context() const noexcept { return context_; }
  /// Ends the program with a message if a call has failed.
  void must(CUresult result, const char* function) const;
  /// For example "CUDA_SUCCESS" or "CUDA_ERROR_UNKNOWN".
  std::string name_of(CUresult result) const;

  CUdeviceptr allocate(std::size_t bytes) const;
  /// Allocates pinned memory, filled with zeros.
  std::uint64_t* allocate_words(std::size_t count) const;
  /// Smaller numbers are greater priorities.
  CUstream make_stream(int priority = 0) const;
  /// Makes a stream of the greatest priority.
  CUstream make_urgent_stream() const;
  /// Launches a kernel that copies `bytes` bytes (a multiple of 4): a reduction of one source.
  CUresult launch(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) const;
  void load_kernel();
  /// Launches a kernel that load_kernel() has not launched. By default, the driver loads kernels at
  /// their first launch, so it loads this kernel here.
  CUresult launch_another(CUdeviceptr target, CUstream stream);

 private:
  std::shared_ptr<const Driver> driver_;
  CUcontext context_ = nullptr;
  CUlibrary library_ = nullptr;
  CUfunction kernel_ = nullptr;
};

/// A call of the driver whose blocking is observed.
struct DriverCall {
  std::string name;
  std::function<void()> make;
};

/// Copies and launches on a stream, one after another. The constructor creates all objects that
/// they need, since the calls that create objects may block.
class StreamWork {
 public:
  StreamWork(const Device& device, CUstream stream);

  /// Runs one round. Returns its duration, or an error text.
  std::string run() const;
  /// Waits until the stream has finished.
  void end() const;
  /// Frees memory. Returns the duration.
  std::string free() const;

 private:
  const Device& device_;
  const CUstream stream_;
  const CUdeviceptr source_, target_;
};

/// A stream that waits by a memory operation until go_on() is called.
class WaitingStream {
 public:
  explicit WaitingStream(const Device& device) : WaitingStream(device, device.make_stream()) {}
  WaitingStream(const Device& device, CUstream stream);

  /// Makes the stream wait.
  void begin();
  /// Makes the stream continue. Any thread may call this.
  void go_on() noexcept { std::atomic_ref(*word_).store(round_, std::memory_order_release); }
  bool is_waiting() const;
  CUstream stream() const noexcept { return stream_; }
  /// Waits until the stream has finished. go_on() must have been called before.
  void end();

 private:
  const Device& device_;
  const CUstream stream_;
  std::uint64_t* const word_;
  std::uint64_t round_ = 0;
};

/// How a call ended that was made while a stream waited.
struct Watched {
  enum class End {
    at_once,   ///< The call returned while the stream waited.
    released,  ///< The call returned only after the stream continued.
    never,     ///< The call did not return. Its thread is abandoned.
  };
  End end = End::never;
  double microseconds = 0;  ///< Time until the call returned.
};

/// Makes a call on a new thread. If it does not return within one second, calls `release`, and
/// waits two more seconds for the call.
Watched watch(const Device& device,
              const std::function<void()>& call,
              const std::function<void()>& release);

/// The time since `begin`.
double microseconds_since(std::chrono::steady_clock::time_point begin);
/// A text such as "12 us".
std::string rounded(double microseconds);

/// One of the texts "at once, after 12 us", "when the stream went on" and "never".
std::string to_string(const Watched& watched);

/// Waits until a stream has finished. Returns CUDA_ERROR_NOT_READY if `limit` passes first.
CUresult wait_for(const Device& device, CUstream stream, std::chrono::milliseconds limit);

/// Prints one answer, as a line of JSON on standard output.
void answer(const std::string& question, const std::string& subject, const std::string& text);

}  // namespace xylem::test::gpu
