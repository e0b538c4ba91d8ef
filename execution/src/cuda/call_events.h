// SPDX-License-Identifier: Apache-2.0
//
// CallEvents: the ends of the last calls of a mesh, for which streams wait.
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::execution::cuda {

/// Calls are numbered from 1. Any thread may call wait_for(), one at a time the other functions.
/// The context must be current.
class CallEvents {
 public:
  explicit CallEvents(const Driver& driver) noexcept : driver_(driver) {}

  Status create();
  /// No stream waits for any of the events any more.
  void destroy() noexcept;

  /// Lets `stream` wait for the last call, and for what is enqueued on the caller's stream so far.
  Status follow(CUstream stream, CUstream caller);
  /// Call `number` ends with what is enqueued on `stream` so far.
  Status record(CUstream stream, std::uint64_t number);
  /// Lets a stream wait for a call. False if that call was too long ago to be known, or has no end.
  Result<bool> wait_for(CUstream stream, std::uint64_t number);

 private:
  static constexpr std::size_t kKnownCalls = 64;

  CUevent end_of(std::uint64_t number) const noexcept { return ends_[number % kKnownCalls]; }
  Status wait(CUstream stream, CUevent event) const;

  const Driver& driver_;
  CUevent begin_ = nullptr;  ///< Of the caller's stream.
  /// [n % kKnownCalls]: the end of call n, for the last calls.
  std::array<CUevent, kKnownCalls> ends_{};
  /// Held while an end is recorded, and while the wait of a stream for it is enqueued.
  Mutex mutex_;
  /// The last call with an end. record() alone changes it.
  std::uint64_t last_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
};

}  // namespace xylem::execution::cuda
