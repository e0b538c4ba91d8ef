// SPDX-License-Identifier: Apache-2.0
//
// CacheChoice: decides whether slots for a receiver are written with ordinary or with non-temporal
// stores. If the cores of sender and receiver share a cache, ordinary stores leave the bytes in
// this cache, where the receiver reads them. If not, an ordinary store to a line that was used
// before must first fetch the line from the receiver's cache, which takes several times as long as
// a non-temporal store. Whether the cores share a cache is unknown, and changes when the operating
// system moves a process to another core. So both kinds of stores are measured repeatedly.
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
  /// Smaller copies are not measured, since their time depends mostly on other factors.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  explicit CacheChoice(ShmWrites writes = ShmWrites::as_measured) noexcept
      : is_settled_(writes != ShmWrites::as_measured), is_non_temporal_(is_settled_) {}

  /// Whether non-temporal stores are preferred according to the latest measurements.
  bool is_non_temporal() const noexcept { return is_non_temporal_; }
  /// Counts a slot that is about to be written. True if it should be written with the kind of store
  /// that is not preferred, in order to measure this kind again.
  bool is_trial() noexcept;
  /// Whether the slot that is_trial() has just counted should be written by a separate copy, so
  /// that the time of this copy can be measured.
  bool wants_time() const noexcept;
  /// Records the measured time of one slot. `ns_per_byte` includes reading the source.
  void learn(bool non_temporal, float ns_per_byte) noexcept;

 private:
  /// The last measurements of one kind of store. Their median ignores a copy that was interrupted.
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
  /// Copies a message into the slot, and also to `also` if `also.memory` is not null. Uses the kind
  /// of store that is not preferred if is_trial() is true for any reader.
  void copy(std::byte* slot, CopyTarget also, const void* data, std::uint64_t bytes) noexcept;

 private:
  std::vector<CacheChoice*> choices_;
};

/// Copies one slot and returns the time per byte in nanoseconds.
float copy_timed(CopyTarget slot, const void* data, std::uint64_t bytes) noexcept;

}  // namespace xylem::transport::shm
