// SPDX-License-Identifier: Apache-2.0
//
// Work: the user's handle to an operation.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"
#include "xylem/runtime/types.h"

#include <chrono>
#include <concepts>
#include <cstdint>
#include <span>
#include <utility>

namespace xylem {

namespace runtime {
class Operation;
struct WorkAccess;
enum class Waiter : std::uint8_t;
}  // namespace runtime

/// A handle to one operation; copies refer to the same operation. Several threads may test and wait
/// at the same time.
///
/// When a Work has ended, with or without error, Xylem does not access the operation's buffers. The
/// only exception is an error for which Status::holds_buffers() is true. Dropping a handle does not
/// cancel the operation: its buffers stay in use until the operation has ended.
class [[nodiscard]] XYLEM_API Work {
 public:
  Work() noexcept = default;
  Work(const Work& other) noexcept;
  Work(Work&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)),
        source_(other.source_),
        count_(other.count_) {}
  Work& operator=(const Work& other) noexcept { return *this = Work(other); }
  Work& operator=(Work&& other) noexcept {
    std::swap(operation_, other.operation_);
    source_ = other.source_;
    count_ = other.count_;
    return *this;
  }
  ~Work();

  /// True if the operation has ended. If it has not, and no other thread holds the progress token,
  /// the call first makes one turn, which may end the operation. An empty Work has ended. In a
  /// forked child every Work has ended, with an error.
  bool test() const noexcept;
  /// Like test(), but never makes a turn.
  bool ended() const noexcept;
  /// Blocks until the operation has ended, and returns its outcome. At the operation's own deadline
  /// (Options::timeout) the operation ends with an error.
  Status wait() const;
  /// Like wait(), but blocks for at most `limit`. If the operation has not ended by then, returns
  /// `timed_out`; the operation continues, and the Work stays valid.
  Status wait_for(std::chrono::nanoseconds limit) const;
  /// Like wait_for(), for a helper thread that waits while the application's own threads compute,
  /// such as a thread that completes futures. The application counts as computing while the thread
  /// that made its last call of Xylem is running. During this time the helper thread uses a core
  /// only to move data, and sleeps otherwise. If the host has as many cores as ranks, and the
  /// application of another rank computes, too, sched_setaffinity() binds the helper thread to the
  /// core on which its own application computes. When wait_beside_program() returns, the thread's
  /// former affinity is restored. After its first call of this function, a thread never counts as
  /// the thread that made the application's last call.
  Status wait_beside_program(std::chrono::nanoseconds limit) const;
  /// Makes a stream wait: work that is enqueued on the stream after this call begins when the
  /// operation has ended, with or without error. The calling thread does not block. Has no effect
  /// if the operation has ended already. Any number of streams may wait for an operation. Fails
  /// with `invalid_argument` if the operation's buffers are not in the memory of the stream's
  /// device: wait() for it instead.
  Status block(const Stream& stream) const;
  /// True if the devices of a mesh carry out the operation by themselves (Communicator::bind). A
  /// stream that waits for the operation then continues without any action of the CPU. There is one
  /// exception: if more than 60 operations have followed before block() is called, the CPU ends the
  /// stream's wait. If false, the CPU always ends the wait, and the driver may delay the CPU while
  /// a stream waits. The value never changes; it is false for an empty Work.
  bool runs_on_devices() const noexcept;
  /// True if the operation was captured into a CUDA graph (Communicator::bind). It is carried out
  /// each time that the graph is launched. The operation has ended when all ranks have captured it.
  /// The value never changes; it is false for an empty Work.
  bool is_captured() const noexcept;
  /// Replaces Options::timeout for this operation by `limit`, counted from the operation's start.
  /// At this deadline the operation ends with `timed_out` on all ranks. If ranks set different
  /// limits, the earliest deadline applies. Has no effect on an operation that has ended.
  void set_timeout(std::chrono::nanoseconds limit) const noexcept;
  /// The outcome of an operation that has ended; `busy` before that.
  Status status() const;
  /// True if the operation has failed, but its communicator is still usable. Only a send or a
  /// receive whose message is longer than the receive's buffer fails in this way. After any other
  /// error of an operation that had begun, the communicator has failed.
  bool failed_alone() const noexcept;
  /// World rank of the sender of a received message; this rank's world rank for other operations.
  /// Valid only after success.
  std::uint32_t source() const noexcept;
  /// Number of elements of a received message, which may be less than the `count` of the receive's
  /// buffer; 0 for other operations. Valid only after success.
  std::uint64_t count() const noexcept;

 private:
  friend struct runtime::WorkAccess;
  explicit Work(runtime::Operation& operation) noexcept;
  explicit Work(std::uint32_t source, std::uint64_t count = 0) noexcept
      : source_(source), count_(count) {}

  Status wait_until(Deadline deadline, runtime::Waiter waiter) const;

  runtime::Operation* operation_ = nullptr;
  // What source() and count() return if `operation_` is null:
  std::uint32_t source_ = 0;
  std::uint64_t count_ = 0;
};

namespace detail {
inline Status first_error(const Status& earlier, const Status& later) {
  return earlier ? later : earlier;
}
}  // namespace detail

/// Waits until all Works, for example those of a vector, have ended. Returns the error of the first
/// one that failed, in the order of the span, or OK.
inline Status wait_all(std::span<const Work> works) {
  Status first;
  for (const Work& work : works) first = detail::first_error(first, work.wait());
  return first;
}
/// Like wait_all() of a span, for Works passed as arguments: `wait_all(receive, send)`.
template <std::same_as<Work>... Works>
Status wait_all(const Works&... works) {
  Status first;
  ((first = detail::first_error(first, works.wait())), ...);
  return first;
}

}  // namespace xylem
