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

/// A handle to one operation; copies refer to the same one. Several threads may test and wait at
/// the same time.
///
/// When a Work has ended, with or without error, Xylem does not access the operation's buffers any
/// more, unless Status::holds_buffers() is true. Dropping a handle does not cancel the operation:
/// its buffers stay in use until it has ended.
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

  /// True when the operation has ended. Otherwise makes one turn for the operations of the job, if
  /// no other thread drives them. An empty Work has ended. In a forked child every Work has ended,
  /// with an error.
  bool test() const noexcept;
  /// Like test(), but never makes a turn.
  bool ended() const noexcept;
  /// Waits until the operation has ended, at most until its own deadline (Options::timeout), and
  /// returns its outcome.
  Status wait() const;
  /// Waits at most `limit`. Returns `timed_out` if the operation has not ended by then. The
  /// operation continues, and the Work stays valid.
  Status wait_for(std::chrono::nanoseconds limit) const;
  /// Like wait_for(), for a thread that waits beside the program's own threads, such as one that
  /// completes futures. While the program computes, that is, while the thread that made its last
  /// call is running, this thread uses the core only to move data, and sleeps otherwise. If the
  /// host has as many cores as ranks, and another rank's program computes, too, this thread is
  /// bound to the core of its own program with sched_setaffinity(); when the call returns, it has
  /// its former cores again. From the first such call on, no call of this thread counts as the
  /// program's.
  Status wait_beside_program(std::chrono::nanoseconds limit) const;
  /// Makes a stream wait: work that is enqueued on it after this call begins when the operation has
  /// ended, with or without error. The calling thread does not wait. Does nothing if the operation
  /// has ended. Any number of streams may wait for an operation. Fails with `invalid_argument` if
  /// the operation's buffers are not in the memory of the stream's device: wait() for it instead.
  Status block(const Stream& stream) const;
  /// Whether the devices of a mesh carry out the operation by themselves (Communicator::bind). If
  /// so, a stream that waits for the operation does not need this process meanwhile. There is one
  /// exception: if more than 60 operations have followed, the host ends the wait of block(). If
  /// false, the host always ends the wait, and the driver may delay the host while a stream waits.
  /// The answer never changes; it is false for an empty Work.
  bool runs_on_devices() const noexcept;
  /// Replaces Options::timeout for this operation by `limit`, counted from its start. At that
  /// deadline it ends with `timed_out` on all ranks. If ranks set different limits, the earliest
  /// deadline counts. No effect on an operation that has ended.
  void set_timeout(std::chrono::nanoseconds limit) const noexcept;
  /// The outcome of an operation that has ended; `busy` before that.
  Status status() const;
  /// True if the operation has failed, but its communicator is still usable. This happens only if
  /// the message of the operation is longer than the buffer of its receive. After any other error
  /// of an operation that had begun, the communicator has failed.
  bool failed_alone() const noexcept;
  /// World rank of the sender of a received message; this rank's world rank for other operations.
  /// Valid only after success.
  std::uint32_t source() const noexcept;
  /// Number of elements of a received message, which may be less than its buffer has room for; 0
  /// for other operations. Valid only after success.
  std::uint64_t count() const noexcept;

 private:
  friend struct runtime::WorkAccess;
  explicit Work(runtime::Operation& operation) noexcept;
  explicit Work(std::uint32_t source, std::uint64_t count = 0) noexcept
      : source_(source), count_(count) {}

  Status wait_until(Deadline deadline, runtime::Waiter waiter) const;

  runtime::Operation* operation_ = nullptr;
  // What source() and count() return if there is no operation:
  std::uint32_t source_ = 0;
  std::uint64_t count_ = 0;
};

namespace detail {
inline Status first_error(const Status& earlier, const Status& later) {
  return earlier ? later : earlier;
}
}  // namespace detail

/// Waits for all the Works, which may be in a vector. Returns the first error in their order, or
/// OK.
inline Status wait_all(std::span<const Work> works) {
  Status first;
  for (const Work& work : works) first = detail::first_error(first, work.wait());
  return first;
}
/// The same for Works that are arguments: `wait_all(receive, send)`.
template <std::same_as<Work>... Works>
Status wait_all(const Works&... works) {
  Status first;
  ((first = detail::first_error(first, works.wait())), ...);
  return first;
}

}  // namespace xylem
