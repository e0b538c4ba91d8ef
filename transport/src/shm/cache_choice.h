// SPDX-License-Identifier: Apache-2.0
//
// CacheChoice: decides whether slots for a receiver are written with ordinary or with non-temporal
// stores. If both cores share a cache, ordinary stores leave the bytes there and the receiver reads
// them from it. If not, each line that is written again must first be fetched back from the
// receiver's cache, which takes several times as long as non-temporal stores. Which case holds
// is unknown, and changes when the scheduler moves a rank, so both ways are measured repeatedly.
#pragma once

#include "xylem/base/copy.h"
#include "xylem/transport/shm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xylem::transport::shm {

class CacheChoice {
 public:
  /// The time of smaller copies depends mostly on other things, so they are not measured.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  explicit CacheChoice(ShmWrites writes = ShmWrites::as_measured) noexcept
      : is_settled_(writes != ShmWrites::as_measured), is_non_temporal_(is_settled_) {}

  /// Whether non-temporal stores are the better way according to the latest measurements.
  bool is_non_temporal() const noexcept { return is_non_temporal_; }
  /// Counts a slot that is about to be copied. True if it should be copied in the way that is not
  /// the preferred one, in order to measure that way again.
  bool is_trial() noexcept;
  /// Whether the slot just counted should be copied separately, so that its time can be measured.
  bool wants_time() const noexcept;
  /// Records the time of one slot. `ns_per_byte` includes reading the source.
  void learn(bool non_temporal, float ns_per_byte) noexcept;

 private:
  /// The median of the last measurements, so that a copy that was interrupted does not count.
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
  std::uint32_t untimed_ = 0;  ///< Slots since the last measured one.
  bool is_settled_;
  bool is_non_temporal_;
};

/// The choices of all readers of one slot. The slot is written with non-temporal stores if any of
/// these choices prefers them.
class CacheChoices {
 public:
  void clear() noexcept { choices_.clear(); }
  void add(CacheChoice& choice) { choices_.push_back(&choice); }
  bool is_non_temporal() const noexcept {
    return std::ranges::any_of(choices_, &CacheChoice::is_non_temporal);
  }
  /// Copies a message into the slot, and also to `also` if that has memory. Uses the opposite kind
  /// of store if a trial is due for any reader.
  void copy(std::byte* slot, CopyTarget also, const void* data, std::uint64_t bytes) noexcept;

 private:
  std::vector<CacheChoice*> choices_;
};

/// Copies one slot and returns the time per byte in nanoseconds.
float copy_timed(CopyTarget slot, const void* data, std::uint64_t bytes) noexcept;

}  // namespace xylem::transport::shm
