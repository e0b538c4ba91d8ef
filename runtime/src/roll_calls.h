// SPDX-License-Identifier: Apache-2.0
//
// RollCalls: who answers. A rank calls the roll of a group when one of its operations nears its
// limit. Every rank of the group answers, whatever it has said before, so a stopped one is known by
// its silence. Several ranks near their limits together, so they share rolls: a rank calls none
// where it has just heard one on the same call, answers only the first of several, and takes that
// for an answer to all of them.
#pragma once

#include "situation.h"
#include "xylem/base/clock.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace xylem::runtime {

struct RollCall {
  /// One rank that is silent for so long after the last answer gives none.
  static constexpr std::chrono::milliseconds kAnswer{300};
  /// Several may just be slow, as on a host that is overloaded, and get so much time in all.
  static constexpr std::chrono::milliseconds kSlowAnswers{1500};

  struct Answer {
    Situation::State state = Situation::State::not_called;
    std::optional<CallRecord> last;  ///< The rank's newest call.
  };

  RollCallId id;
  std::uint64_t group = 0, sequence = 0;      ///< The call that is asked after.
  Clock::time_point since{};                  ///< When this rank called or heard it.
  Clock::duration waited{0};                  ///< How long this rank has run since then.
  Clock::duration quiet{0};                   ///< How long it has run since the last answer.
  bool is_answered_here = false;              ///< By this rank; or it has called it.
  std::map<std::uint32_t, Answer> answers{};  ///< By world rank, the caller's too.

  static Answer answer_of(const Situation& situation);
  /// With so many ranks that have not answered: whether they are waited for no more.
  bool is_over(std::size_t missing) const noexcept;
};

/// The roll calls that a rank knows of, its own and those of others. One thread at a time.
class RollCalls {
 public:
  /// Rolls on the same call that are called within this time of each other are one.
  static constexpr std::chrono::milliseconds kShared{100};
  /// The others' clocks see that time as up to so long.
  static constexpr std::chrono::milliseconds kSharedElsewhere{300};
  static constexpr std::chrono::milliseconds kKept{5000};  ///< Then it is forgotten.
  /// A tick counts as no more, or a rank that was stopped would take its own silence for others'.
  static constexpr std::chrono::milliseconds kMostOfATick{100};

  explicit RollCalls(std::uint32_t rank) : rank_(rank) {}

  /// One that is recent enough to share, or null.
  const RollCall* recent(std::uint64_t group, std::uint64_t sequence, Clock::time_point now) const;
  /// One more of this rank's own.
  const RollCall& call(std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  /// Another rank has called one, in this situation. True if this rank has to answer it.
  bool hear(RollCallId id, const Situation& situation, Clock::time_point now);
  void on_answer(std::uint32_t rank, const Situation& situation);
  /// Null: there never was one, or it is forgotten.
  const RollCall* find(RollCallId id) const;
  /// Time has passed.
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
