// SPDX-License-Identifier: Apache-2.0
//
// RollCalls: finds out which ranks of a group still answer. A rank starts a roll call when one of
// its operations nears its time limit. Every rank of the group answers, even if it has published
// the same situation before, so a stopped rank is recognized by its missing answer. Often several
// ranks reach their limits at the same time, so they share roll calls. A rank starts none if it has
// just received one about the same call. If several ranks start one at the same time, each roll
// call reaches only some of the ranks (ControlPlane::flood). A rank answers only the first of them,
// also if it has started one itself, and counts an answer to one of them for all.
#pragma once

#include "failure/situation.h"
#include "xylem/base/clock.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace xylem::runtime {

struct RollCall {
  /// If only one answer is missing, the roll call ends when this time has passed since the last
  /// answer.
  static constexpr std::chrono::milliseconds kAnswer{300};
  /// If several answers are missing, their ranks may just be slow, as on an overloaded host. The
  /// roll call then ends when this time has passed since its start.
  static constexpr std::chrono::milliseconds kSlowAnswers{1500};

  struct Answer {
    Situation::State state = Situation::State::not_called;
    std::optional<CallRecord> last;  ///< The rank's newest call.
  };

  RollCallId id;
  std::uint64_t group = 0, sequence = 0;  ///< The call that the roll call is about.
  Clock::time_point since{};              ///< When this rank started or received the roll call.
  Clock::duration waited{0};              ///< For how long this rank has run since `since`.
  Clock::duration quiet{0};               ///< For how long this rank has run since the last answer.
  bool is_answered_here = false;          ///< This rank has answered the roll call.
  /// The answers by world rank. They include the situation of the rank that started the roll call.
  std::map<std::uint32_t, Answer> answers{};

  static Answer answer_of(const Situation& situation);
  /// Whether the roll call has ended. `missing`: how many ranks have not answered.
  bool is_over(std::size_t missing) const noexcept;
};

/// The recent roll calls at one rank: those that it has started, and those that it has received.
/// Used by one thread at a time.
class RollCalls {
 public:
  /// Roll calls about the same call that start within this time count as one.
  static constexpr std::chrono::milliseconds kShared{100};
  /// Another rank answers only the first of several roll calls that reach it within kShared. These
  /// roll calls may reach this rank up to this far apart.
  static constexpr std::chrono::milliseconds kSharedElsewhere{300};
  static constexpr std::chrono::milliseconds kKept{5000};  ///< After this, a roll call is removed.
  /// The largest time that one tick adds to `waited` and `quiet`. Without this limit, a rank that
  /// was stopped itself would count the time in which it received nothing as silence of the others.
  static constexpr std::chrono::milliseconds kMostOfATick{100};

  explicit RollCalls(std::uint32_t rank) : rank_(rank) {}

  /// A roll call about call `sequence` of `group` that is recent enough to share (kShared), or
  /// null.
  const RollCall* recent(std::uint64_t group, std::uint64_t sequence, Clock::time_point now) const;
  /// Adds a roll call that this rank starts.
  const RollCall& call(std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  /// Adds a roll call that another rank has started; `situation` is the situation of that rank.
  /// True if this rank has to answer the roll call.
  bool on_situation(RollCallId id, const Situation& situation, Clock::time_point now);
  void on_answer(std::uint32_t rank, const Situation& situation);
  /// The roll call with this id. Null if there is none, or if it has been removed.
  const RollCall* find(RollCallId id) const;
  /// Adds the time since the last tick to all roll calls.
  void tick(Clock::time_point now);

 private:
  RollCall& add(RollCallId id, std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  void note(const RollCall& roll, std::uint32_t rank, const Situation& situation);
  void forget_old(Clock::time_point now);

  std::uint32_t rank_, number_ = 0;
  Clock::time_point last_tick_{};
  std::deque<RollCall> known_;  ///< Oldest first.
};

}  // namespace xylem::runtime
