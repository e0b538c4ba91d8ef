// SPDX-License-Identifier: Apache-2.0
#include "progress/contention.h"

#include <algorithm>

namespace xylem::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A span of at least this length counts as a loss. Ranks that share the core and only wait release
/// the core sooner than that, and so do threads of the system.
constexpr std::chrono::microseconds kLoss{900};
/// Contention ends after this number of probes in a row without a loss.
constexpr unsigned kFreeProbes = 8;
/// Time from a loss to the next probe: the first value, and the largest one. The first value is
/// short: if a loss has another cause than contention, such as a thread of the system, polling
/// stops only for a few milliseconds.
constexpr std::chrono::microseconds kFirstInterval{500};
constexpr milliseconds kLongestInterval{1000};
/// Longest time from a probe without a loss to the next probe. If contention has ended and soon
/// returned, kFreeProbes probes at this distance take longer than a data loader waits between two
/// batches.
constexpr milliseconds kBetweenProbes{2};
constexpr milliseconds kSoon{16};

}  // namespace

void Contention::note(nanoseconds span, Clock::time_point now) noexcept {
  losses_ = span < kLoss ? 0 : losses_ + 1;
  if (losses_ < losses_to_begin_ || is_present()) return;
  // Contention that soon returns had not really ended: the other programs paused, and left the core
  // free for a short time.
  const bool is_back = now - ended_ < std::max<nanoseconds>(interval_, kSoon);
  interval_ = is_back ? std::clamp<nanoseconds>(2 * interval_, kFirstInterval, kLongestInterval)
                      : kFirstInterval;
  free_probes_ = 0;
  next_probe_ = now + interval_;
  is_present_.store(true, std::memory_order_relaxed);
}

void Contention::note_probe(nanoseconds span, Clock::time_point now) noexcept {
  if (span >= kLoss) {
    free_probes_ = 0;
    interval_ = std::min<nanoseconds>(2 * interval_, kLongestInterval);
    next_probe_ = now + interval_;
    return;
  }
  next_probe_ = now + std::min<nanoseconds>(interval_, kBetweenProbes);
  if (++free_probes_ < kFreeProbes) return;
  losses_ = 0;
  ended_ = now;
  is_present_.store(false, std::memory_order_relaxed);
}

}  // namespace xylem::runtime
