// SPDX-License-Identifier: Apache-2.0
//
// RollCalls: finds out which ranks answer. A rank calls the roll of a group when one of its
// operations nears its limit. Every rank of the group answers, whatever it has published before, so
// a stopped rank is recognized by its missing answer. Several ranks come near their limits
// together, so they share rolls. A rank calls no roll if it has just received one on the same call.
// It answers only the first of several, and counts an answer to one of them for all.
#pragma once

#include "failure/situation.h"
#include "xylem/base/clock.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace xylem::runtime {

struct RollCall {
  /// If only one rank is missing, the roll is over when this time has passed since the last answer.
  static constexpr std::chrono::milliseconds kAnswer{300};
  /// If several ranks are missing, they may just be slow, as on an overloaded host. They get this
  /// much time in all.
  static constexpr std::chrono::milliseconds kSlowAnswers{1500};

  struct Answer {
    Situation::State state = Situation::State::not_called;
    std::optional<CallRecord> last;  ///< The rank's newest call.
  };

  RollCallId id;
  std::uint64_t group = 0, sequence = 0;  ///< The call that the roll is about.
  Clock::time_point since{};              ///< When this rank called the roll or received it.
  Clock::duration waited{0};              ///< For how long this rank has been running since then.
  Clock::duration quiet{0};  ///< For how long this rank has been running since the last answer.
  bool is_answered_here = false;  ///< This rank has answered the roll, or has called it.
  /// The answer of each world rank, including that of the caller.
  std::map<std::uint32_t, Answer> answers{};

  static Answer answer_of(const Situation& situation);
  /// Whether the roll is over, if `missing` ranks have not answered.
  bool is_over(std::size_t missing) const noexcept;
};

/// The recent roll calls at one rank, its own and those of others. Used by one thread at a time.
class RollCalls {
 public:
  /// Rolls on the same call that are called within this time count as one.
  static constexpr std::chrono::milliseconds kShared{100};
  /// Another rank answers only the first of several rolls that reach it within kShared. The same
  /// rolls may reach this rank up to this far apart.
  static constexpr std::chrono::milliseconds kSharedElsewhere{300};
  static constexpr std::chrono::milliseconds kKept{5000};  ///< After this time a roll is forgotten.
  /// A tick counts as no more than this. Otherwise a rank that was stopped itself would mistake the
  /// time in which it received nothing for silence of the others.
  static constexpr std::chrono::milliseconds kMostOfATick{100};

  explicit RollCalls(std::uint32_t rank) : rank_(rank) {}

  /// A roll that is recent enough to share, or null.
  const RollCall* recent(std::uint64_t group, std::uint64_t sequence, Clock::time_point now) const;
  /// Adds a roll that this rank calls.
  const RollCall& call(std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  /// Adds a roll that another rank has called; `situation` is that rank's. True if this rank has to
  /// answer the roll.
  bool on_situation(RollCallId id, const Situation& situation, Clock::time_point now);
  void on_answer(std::uint32_t rank, const Situation& situation);
  /// The roll with this id. Null if there never was such a roll, or if it is forgotten.
  const RollCall* find(RollCallId id) const;
  /// Adds the time since the last tick to all rolls.
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
