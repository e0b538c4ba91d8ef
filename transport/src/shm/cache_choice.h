// SPDX-License-Identifier: Apache-2.0
//
// How slots for a receiver are written. Where the two cores share a cache, bytes written into it
// are read from it, and memory sees nothing of them. Where they do not, each line that is written
// again must first be fetched back from the receiver's cache, which takes several times as long as
// to write past the caches and to let the receiver read memory. Which of the two it is, nobody
// says, and it changes when a scheduler moves a rank: so it is measured again and again.
#pragma once

#include "xylem/base/copy.h"
#include "xylem/transport/shm.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace xylem::transport::shm {

class CacheChoice {
 public:
  /// Of smaller ones the time is mostly other things.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  explicit CacheChoice(ShmWrites writes = ShmWrites::as_measured) noexcept
      : is_settled_(writes != ShmWrites::as_measured), is_past_cache_(is_settled_) {}

  /// The way that is best by now.
  bool is_past_cache() const noexcept { return is_past_cache_; }
  /// Counts a slot that is to be copied; whether to copy it the other way, to know how that does by
  /// now.
  bool is_trial() noexcept;
  /// Whether the slot that was counted should be copied by itself, to know how long that takes.
  bool wants_time() const noexcept;
  /// A slot was copied so; `ns_per_byte` counts the reading of its source, too.
  void learn(bool past_cache, float ns_per_byte) noexcept;

 private:
  /// The median of the last few: one that was interrupted does not count.
  class Times {
   public:
    void add(float time) noexcept { times_[count_++ % kTimes] = time; }
    void clear() noexcept { count_ = 0; }
    bool is_known() const noexcept { return count_ >= kTimes; }
    float median() const noexcept;

   private:
    static constexpr std::size_t kTimes = 7;

    std::array<float, kTimes> times_{};
    std::size_t count_ = 0;
  };

  Times into_, past_;
  std::uint32_t slots_ = 0;
  std::uint32_t untimed_ = 0;  ///< Slots since the last that was timed.
  bool is_settled_;
  bool is_past_cache_;
};

/// Copies one slot; returns how many nanoseconds a byte took.
float copy_timed(CopyTarget slot, const void* data, std::uint64_t bytes) noexcept;

}  // namespace xylem::transport::shm
