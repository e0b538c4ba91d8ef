// SPDX-License-Identifier: Apache-2.0
//
// Work: one operation under way.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <chrono>
#include <cstdint>
#include <utility>

namespace xylem {

namespace runtime {
class Group;
class Operation;
class PointToPoint;
}  // namespace runtime

/// A handle to one operation; copies share it. Any thread may test or wait, several at once.
///
/// When a Work has ended, with or without error, no transport touches the operation's buffers any
/// more. Dropping a handle does not cancel the operation: its buffers stay in use until it has
/// ended.
class [[nodiscard]] XYLEM_API Work {
 public:
  Work() noexcept = default;
  Work(const Work& other) noexcept;
  Work(Work&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)), source_(other.source_) {}
  Work& operator=(const Work& other) noexcept { return *this = Work(other); }
  Work& operator=(Work&& other) noexcept {
    std::swap(operation_, other.operation_);
    source_ = other.source_;
    return *this;
  }
  ~Work();

  /// True when the operation has ended; moves things forward a little. An empty Work has ended, and
  /// in a forked child every Work: its status is an error there.
  bool test() const noexcept;
  /// True when the operation has ended; moves nothing. An empty Work has ended.
  bool ended() const noexcept;
  /// Waits until the operation has ended, at most until its own deadline (Options::timeout), and
  /// returns its outcome.
  Status wait() const;
  /// Waits at most `limit`; `timed_out` then says that the operation goes on, and the Work stays
  /// valid.
  Status wait_for(std::chrono::nanoseconds limit) const;
  /// Gives the operation a deadline of its own, `limit` after it has begun, instead of
  /// Options::timeout; then it ends with `timed_out` on all ranks as any other. For each rank to
  /// say; the earliest counts. Without effect on an operation that has ended.
  void set_timeout(std::chrono::nanoseconds limit) const noexcept;
  /// Outcome of an ended operation; `busy` while it goes on.
  Status status() const;
  /// World rank a receive got its message from; own rank for other operations. Only after success.
  std::uint32_t source() const noexcept;

 private:
  friend class runtime::Group;
  friend class runtime::PointToPoint;
  /// The first handle to an operation; takes over a reference to it.
  explicit Work(runtime::Operation& operation) noexcept;
  /// Of a call that was over when it returned.
  explicit Work(std::uint32_t source) noexcept : source_(source) {}

  runtime::Operation* operation_ = nullptr;
  std::uint32_t source_ = 0;  ///< Where there is no operation.
};

/// Waits for all; returns the first error in order of the arguments, or OK.
template <typename... Works>
Status wait_all(const Works&... works) {
  Status first;
  const auto keep = [&first](Status status) {
    if (first && !status) first = std::move(status);
  };
  (keep(works.wait()), ...);
  return first;
}

}  // namespace xylem
