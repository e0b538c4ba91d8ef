// SPDX-License-Identifier: Apache-2.0
#include "progress/waiting.h"

#include <sched.h>

#include <algorithm>

namespace xylem::runtime {

using std::chrono::microseconds;

WaitPolicy WaitPolicy::make(WaitMode mode,
                            std::uint32_t cores,
                            std::uint32_t ranks,
                            bool has_core_for_each) noexcept {
  constexpr auto kForever = std::chrono::hours(24 * 365);
  switch (mode) {
    case WaitMode::spin: return {kForever, {}, false};
    case WaitMode::yield: return {{}, kForever, false};
    case WaitMode::sleep: return {{}, {}, true};
    case WaitMode::automatic: break;
  }
  const bool has_cores = cores >= ranks;
  return {.spin = has_cores ? microseconds(200) : microseconds(0),
          .yield = microseconds(1000),
          .sleep = true,
          .learns = has_cores,
          .heeds_contention = true,
          .spinners = std::max(1U, cores / std::max(1U, ranks)),
          .follows_application = has_cores && has_core_for_each && ranks > 1};
}

SpinLearner::Next SpinLearner::next() noexcept {
  // Yielding is chosen only if its idle periods are a fifth shorter. Otherwise chance would decide
  // if both ways are equally good.
  const bool spins = 5 * yielding_ >= 4 * spinning_;
  is_trial_ = --until_trial_ <= 0;
  if (!is_trial_) {
    // Reading the clock takes time, so only one period in eight is timed.
    constexpr std::int64_t kTimed = 8;
    return {spins, until_trial_ % kTimed == 0};
  }
  constexpr Nanoseconds kLeast = 100, kMostRatio = 1024;
  const auto better = std::max(spins ? spinning_ : yielding_, kLeast);
  const auto worse = std::max(spins ? yielding_ : spinning_, kLeast);
  constexpr std::int64_t kPart = 64;
  until_trial_ = kPart * std::clamp<Nanoseconds>(worse / better, 1, kMostRatio);
  return {!spins, true};
}

void SpinLearner::note(bool has_spun, std::chrono::nanoseconds idle) noexcept {
  constexpr Nanoseconds kLongest = 4'000'000;
  // Trials are rare, so the result of a trial counts more than older results.
  const Nanoseconds weight = is_trial_ ? 2 : 8;
  Nanoseconds& average = has_spun ? spinning_ : yielding_;
  average += (std::min<Nanoseconds>(idle.count(), kLongest) - average) / weight;
}

void Idleness::begin(bool is_crowded) noexcept {
  spin_ = is_crowded ? std::chrono::nanoseconds(0) : policy_.spin;
  is_timed_ = false;
  if (learner_ != nullptr && !is_crowded) {
    const auto [spins, is_timed] = learner_->next();
    if (!spins) spin_ = std::chrono::nanoseconds(0);
    is_timed_ = is_timed;
    if (is_timed_) begun_ = Clock::now();
  }
  next_ = spin_.count() > 0 ? Next::spin : policy_.yield.count() > 0 ? Next::yield : Next::sleep;
}

Idleness::Next Idleness::step(bool is_crowded, bool& looked) noexcept {
  constexpr std::uint32_t kYieldsPerLook = 4;
  looked = false;
  if (turns_ == 0) begin(is_crowded);
  if (++turns_ % (next_ == Next::spin ? kTurnsPerLook : kYieldsPerLook) != 0) return next_;
  looked = true;
  const auto now = Clock::now();
  if (!has_looked_) {
    since_ = now;
  } else if (contention_ != nullptr && next_ == Next::spin) {
    contention_->note(now - looked_, now);
  }
  has_looked_ = true;
  looked_ = now;
  const auto idle = now - since_;
  if (idle < spin_) {
    next_ = Next::spin;
  } else if (idle < spin_ + policy_.yield || !policy_.sleep) {
    next_ = policy_.yield.count() == 0 ? Next::spin : Next::yield;
  } else {
    next_ = Next::sleep;
  }
  return next_;
}

void Idleness::yield() noexcept {
  if (contention_ == nullptr) {
    sched_yield();
    return;
  }
  const auto before = Clock::now();
  sched_yield();
  const auto after = Clock::now();
  contention_->note(after - before, after);
}

}  // namespace xylem::runtime
