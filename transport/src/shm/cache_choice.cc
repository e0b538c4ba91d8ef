// SPDX-License-Identifier: Apache-2.0
#include "shm/cache_choice.h"

#include "xylem/base/clock.h"

#include <algorithm>
#include <chrono>

namespace xylem::transport::shm {
namespace {

/// The choice changes to non-temporal stores if ordinary stores take kMuchSlower times as long, and
/// back if they take less than kHardlySlower times as long. Writing a slot takes about twelve times
/// as long if its lines are in a cache that the two cores do not share ("Copies between cores" in
/// bench/results/2026-11-29-history.md), but the measured ratio is smaller, since the times include
/// reading the source. At equal times ordinary stores are better, since the receiver reads a slot
/// faster from the cache.
constexpr float kMuchSlower = 3, kHardlySlower = 2;

}  // namespace

bool CacheChoice::is_trial() noexcept {
  // The number of slots between two trials of the kind of store that is not preferred. Trials are
  // frequent until both kinds have been measured, and rare afterwards. They are rarest while
  // ordinary stores are preferred, since the receiver must read the slot of a trial from memory.
  constexpr std::uint32_t kSoon = 8, kSeldom = 64, kMostSeldom = 256;
  if (is_settled_) return false;
  ++untimed_;
  const std::uint32_t interval = !past_.is_known()  ? kSoon
                                 : is_non_temporal_ ? kSeldom
                                                    : kMostSeldom;
  return ++slots_ % interval == 0;
}

bool CacheChoice::wants_time() const noexcept {
  constexpr std::uint32_t kNowAndThen = 16;
  const bool knows_both = into_.is_known() && past_.is_known();
  return !is_settled_ && (!knows_both || untimed_ >= kNowAndThen);
}

void CacheChoice::learn(bool non_temporal, float ns_per_byte) noexcept {
  if (is_settled_) return;
  untimed_ = 0;
  (non_temporal ? past_ : into_).add(ns_per_byte);
  if (!is_non_temporal_) {
    is_non_temporal_ =
        into_.is_known() && past_.is_known() && into_.median() > kMuchSlower * past_.median();
  } else if (!non_temporal && ns_per_byte < kHardlySlower * past_.median()) {
    is_non_temporal_ = false;
    into_.clear();
  }
}

float CacheChoice::Times::median() const noexcept {
  auto sorted = times_;
  const auto middle = sorted.begin() + kTimes / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void CacheChoices::copy(std::byte* slot,
                        CopyTarget also,
                        const void* data,
                        std::uint64_t bytes) noexcept {
  bool is_trial = false, is_timed = also.memory == nullptr;
  for (CacheChoice* choice : choices_) {
    is_trial = choice->is_trial() || is_trial;
    is_timed = choice->wants_time() || is_timed;
  }
  const CopyTarget target{slot, is_non_temporal() != is_trial};
  if (!is_timed && !is_trial) return copy_to_both(target, also, data, bytes);
  const float time = copy_timed(target, data, bytes);
  for (CacheChoice* choice : choices_) choice->learn(target.non_temporal, time);
  if (also.memory != nullptr) copy_to(also, data, bytes);
}

float copy_timed(CopyTarget slot, const void* data, std::uint64_t bytes) noexcept {
  const auto begun = Clock::now();
  copy_to(slot, data, bytes);
  const std::chrono::duration<float, std::nano> time = Clock::now() - begun;
  return time.count() / static_cast<float>(bytes);
}

}  // namespace xylem::transport::shm
