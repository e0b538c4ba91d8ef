// SPDX-License-Identifier: Apache-2.0
//
// CallEvents: marks the ends of the last calls of a mesh by events, so that streams can wait for
// these calls.
#pragma once

#include "cuda/driver.h"
#include "xylem/base/mutex.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace xylem::execution::cuda {

/// Calls are numbered from 1. Any thread may call wait_for(). Only one thread at a time may call
/// the other functions. The context must be current.
class CallEvents {
 public:
  explicit CallEvents(const Driver& driver) noexcept : driver_(driver) {}

  Status create();
  /// Destroys the events. Precondition: no stream waits for one of them.
  void destroy() noexcept;

  /// Makes `stream` wait for the last call, unless it ran on the same stream, and for all work that
  /// has been enqueued on the stream `caller` so far. `id` is that of `stream` (cuStreamGetId()).
  Status follow(CUstream stream, unsigned long long id, CUstream caller);
  /// The same for a call on a stream that is being captured: makes it wait for the last call that
  /// follow_captured() and record_captured() have been called for, if that belongs to the same
  /// capture (Driver::capture_of()).
  Status follow_captured(CUstream stream, cuuint64_t capture);
  Status record_captured(CUstream stream, cuuint64_t capture);
  /// Marks the end of call `number`: it ends when `stream` has completed all work that has been
  /// enqueued on it so far.
  Status record(CUstream stream, std::uint64_t number);
  /// Makes `stream` wait for the end of a call. False if this end has not been recorded, or if at
  /// least kKnownCalls later ends have been recorded.
  Result<bool> wait_for(CUstream stream, std::uint64_t number);

 private:
  static constexpr std::size_t kKnownCalls = 64;

  CUevent end_of(std::uint64_t number) const noexcept { return ends_[number % kKnownCalls]; }
  Status create(CUevent& event) const;
  void destroy(CUevent event) const noexcept;
  Status wait(CUstream stream, CUevent event) const;

  const Driver& driver_;
  CUevent begin_ = nullptr;     ///< Recorded on the caller's stream by follow().
  CUevent captured_ = nullptr;  ///< Marks the end of the last captured call.
  std::optional<cuuint64_t> last_capture_;
  /// The id of the stream of the last call. Handles of streams are not unique: a handle can be
  /// reused, and CU_STREAM_PER_THREAD is another stream in each thread.
  unsigned long long last_stream_ = 0;
  /// ends_[n % kKnownCalls] marks the end of call n, for the last kKnownCalls calls.
  std::array<CUevent, kKnownCalls> ends_{};
  /// Held while an event of `ends_` is recorded, and while the wait of a stream for such an event
  /// is enqueued.
  Mutex mutex_;
  /// The last call whose end has been recorded. Only record() changes this member.
  std::uint64_t last_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
};

}  // namespace xylem::execution::cuda
