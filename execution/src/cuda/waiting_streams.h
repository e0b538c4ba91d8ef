// SPDX-License-Identifier: Apache-2.0
//
// WaitingStreams: limits how many streams of a device wait in calls of meshes at a time. All
// streams of a process share a few hardware queues of the device. If streams that wait occupy all
// of them, no other work of the process runs on the device, and the calls never end.
#pragma once

#include "xylem/base/mutex.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::execution::cuda {

/// Any thread may call these functions.
class WaitingStreams {
 public:
  /// At most `most` streams wait at a time.
  explicit WaitingStreams(std::uint32_t most) noexcept : most_(most) {}

  std::uint32_t most() const noexcept { return most_; }
  /// Notes that a stream (cuStreamGetId()) waits until `*word`, in pinned memory, is at least
  /// `value`. False, and nothing is noted, if the stream does not wait yet, and `most` others do.
  bool add(unsigned long long stream, std::uint64_t* word, std::uint64_t value);
  /// Forgets all waits for a word.
  void forget(const std::uint64_t* word) noexcept;

 private:
  struct Wait {
    unsigned long long stream = 0;
    std::uint64_t* word = nullptr;
    std::uint64_t value = 0;
  };

  const std::uint32_t most_;
  Mutex mutex_;
  std::vector<Wait> waits_ XYLEM_LOCKING(guarded_by(mutex_));  ///< One for each stream.
};

}  // namespace xylem::execution::cuda
