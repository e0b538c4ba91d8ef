// SPDX-License-Identifier: Apache-2.0
//
// One CUDA device by the driver that CUDA_DRIVER names, for programs that ask what a driver does.
// An unexpected error of the driver ends the program.
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

/// Device 0 with its primary context, which is current for the thread that makes the object.
class Device {
 public:
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() = default;  // The process ends soon; what it has may be in use by a stream that waits.

  const Driver& driver() const noexcept { return *driver_; }
  /// The functions that may wait for streams, which these programs call to see that they do.
  const execution::cuda::BlockingDriver& blocking() const noexcept {
    return driver_->blocking(execution::cuda::MayWait{});
  }
  CUcontext context() const noexcept { return context_; }
  /// Ends the program with a message if a call has failed.
  void must(CUresult result, const char* function) const;
  /// "CUDA_SUCCESS", "CUDA_ERROR_…".
  std::string name_of(CUresult result) const;

  CUdeviceptr allocate(std::size_t bytes) const;
  /// Pinned memory, all zero.
  std::uint64_t* allocate_words(std::size_t count) const;
  /// Greater priorities are smaller numbers.
  CUstream make_stream(int priority = 0) const;
  /// A stream of the greatest priority.
  CUstream make_urgent_stream() const;
  /// A kernel that copies `bytes` (a multiple of 4) as a sum of one source.
  CUresult launch(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) const;
  void load_kernel();
  /// Launches a kernel that load_kernel() has not launched. A driver that loads kernels when they
  /// are used, as it does by default, loads it now.
  CUresult launch_another(CUdeviceptr target, CUstream stream);

 private:
  std::shared_ptr<const Driver> driver_;
  CUcontext context_ = nullptr;
  CUlibrary library_ = nullptr;
  CUfunction kernel_ = nullptr;
};

/// A call of the driver that is watched.
struct DriverCall {
  std::string name;
  std::function<void()> make;
};

/// Copies and launches on a stream, one after the other. Everything that they need is made before,
/// since calls that make it may wait.
class StreamWork {
 public:
  StreamWork(const Device& device, CUstream stream);

  /// The time of one round, or what went wrong.
  std::string run() const;
  /// Waits until the stream is done.
  void end() const;
  /// How long it takes to free memory.
  std::string free() const;

 private:
  const Device& device_;
  const CUstream stream_;
  const CUdeviceptr source_, target_;
};

/// A stream that waits by a memory operation until it is told to go on.
class WaitingStream {
 public:
  explicit WaitingStream(const Device& device) : WaitingStream(device, device.make_stream()) {}
  WaitingStream(const Device& device, CUstream stream);

  /// Lets the stream wait.
  void begin();
  /// Lets it go on. All threads may call it.
  void go_on() noexcept { std::atomic_ref(*word_).store(round_, std::memory_order_release); }
  bool is_waiting() const;
  CUstream stream() const noexcept { return stream_; }
  /// Waits for the stream, which must have been told to go on.
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
    at_once,   ///< It returned although the stream waited.
    released,  ///< It returned only when the stream was told to go on.
    never,     ///< Not even then. Its thread is left behind.
  };
  End end = End::never;
  double microseconds = 0;  ///< Until it returned.
};

/// Makes a call in a thread of its own. If it does not return within a second, `release` is called,
/// and the call gets two more seconds.
Watched watch(const Device& device,
              const std::function<void()>& call,
              const std::function<void()>& release);

/// The time since then.
double microseconds_since(std::chrono::steady_clock::time_point begin);
/// "12 us".
std::string rounded(double microseconds);

/// "at once, after 12 us", "when the stream went on", "never".
std::string to_string(const Watched& watched);

/// Waits until a stream is done, at most this long. CUDA_ERROR_NOT_READY if it is not.
CUresult wait_for(const Device& device, CUstream stream, std::chrono::milliseconds limit);

/// One answer, as a line of JSON on standard output.
void answer(const std::string& question, const std::string& subject, const std::string& text);

}  // namespace xylem::test::gpu
