// SPDX-License-Identifier: Apache-2.0
//
// How a thread waits while nothing happens: it spins, yields its core, or sleeps. WaitPolicy
// contains the durations, SpinLearner finds out whether spinning or yielding is better, and
// Idleness applies both for one waiter.
#pragma once

#include "config.h"
#include "progress/contention.h"
#include "xylem/base/clock.h"

#include <chrono>
#include <cstdint>
#include <limits>

namespace xylem::runtime {

/// While a waiter spins and nothing happens, it reads the clock once in this many turns.
inline constexpr std::uint32_t kTurnsPerLook = 32;

/// How long an idle waiter spins and yields, and whether it sleeps afterwards.
struct WaitPolicy {
  std::chrono::nanoseconds spin{0};
  std::chrono::nanoseconds yield{0};
  bool sleep = true;
  /// True if the waiter spins only while SpinLearner finds that spinning is better.
  bool learns = false;
  /// True if the waiter sleeps at once while there is contention for the cores (contention.h).
  bool heeds_contention = false;
  /// How many threads of this rank may spin at the same time; see is_crowded().
  std::uint32_t spinners = std::numeric_limits<std::uint32_t>::max();
  /// True if a thread that waits beside the application is bound to the core of the application's
  /// thread, while the application computes at this rank and at others of the host. Without this,
  /// the system could run the waiting thread on the core of another rank, and delay that rank.
  bool follows_application = false;

  /// `cores`: how many cores the `ranks` ranks of this machine have together.
  /// `has_core_for_each`: the result of has_core_for_each() (cores.h) for these ranks.
  static WaitPolicy make(WaitMode mode,
                         std::uint32_t cores,
                         std::uint32_t ranks,
                         bool has_core_for_each) noexcept;
  /// Whether the threads of this rank that wait (`waiters`) must yield, since there are not enough
  /// cores for all of them to spin.
  bool is_crowded(std::uint32_t waiters) const noexcept { return waiters > spinners; }
};

/// Learns which way of waiting ends idle periods sooner: spinning, which reacts at once, or
/// yielding, during which a peer without a core of its own can run. This must be measured, since
/// ranks may share cores with processes that are unknown to them. The learner chooses the better
/// way. From time to time it tries the other way. These trials take about 1/64 of the waiting time.
class SpinLearner {
 public:
  struct Next {
    /// True if the idle period begins by spinning, false if it begins by yielding.
    bool spins = true;
    /// The caller must measure the idle period and pass its length to note().
    bool is_timed = false;
  };
  /// Decides how to wait. Call this at the start of each idle period.
  Next next() noexcept;
  /// Reports the length of an idle period that was timed, from its start to its end.
  void note(bool has_spun, std::chrono::nanoseconds idle) noexcept;

 private:
  using Nanoseconds = std::int64_t;

  Nanoseconds spinning_ = 0, yielding_ = 0;  ///< Moving averages of idle periods.
  /// The number of idle periods until the next trial of the other way.
  std::int64_t until_trial_ = 64;
  bool is_trial_ = false;  ///< This idle period is a trial.
};

/// Decides whether an idle waiter spins, yields or sleeps next.
class Idleness {
 public:
  enum class Next : std::uint8_t { spin, yield, sleep };

  /// For a thread without the token: it neither learns nor detects contention.
  explicit Idleness(const WaitPolicy& policy) noexcept : policy_(policy) {}
  /// For the token holder. Only this thread uses `learner` and changes `contention` while this
  /// object exists.
  Idleness(const WaitPolicy& policy, SpinLearner& learner, Contention& contention) noexcept
      : policy_(policy),
        learner_(policy.learns ? &learner : nullptr),
        contention_(policy.heeds_contention ? &contention : nullptr) {}

  /// Call this when something has happened: ends the idle period, if there is one.
  void reset() noexcept {
    if (turns_ == 0) return;
    if (is_timed_) learner_->note(spin_.count() > 0, Clock::now() - begun_);
    turns_ = 0;
    has_looked_ = false;
  }
  /// What to do after a turn in which nothing happened. Sets `looked` to whether the clock was
  /// read. The idle period does not spin if `is_crowded` (WaitPolicy::is_crowded()) is true at its
  /// start.
  Next step(bool is_crowded, bool& looked) noexcept;
  /// Yields, and measures how long that takes.
  void yield() noexcept;

 private:
  void begin(bool is_crowded) noexcept;

  const WaitPolicy& policy_;
  SpinLearner* const learner_ = nullptr;
  Contention* const contention_ = nullptr;
  std::chrono::nanoseconds spin_{0};  ///< How long this idle period spins.
  std::uint32_t turns_ = 0;
  bool has_looked_ = false;
  bool is_timed_ = false;  ///< True if the learner needs the length of this idle period.
  Next next_ = Next::spin;
  Clock::time_point begun_{};   ///< Start of an idle period that is timed.
  Clock::time_point since_{};   ///< When the clock was first read in this idle period.
  Clock::time_point looked_{};  ///< When the clock was last read in this idle period.
};

}  // namespace xylem::runtime
