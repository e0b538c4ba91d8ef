// SPDX-License-Identifier: Apache-2.0
//
// RollCalls: who answers. A rank whose operation reaches its limit calls the roll of the group:
// every rank of it answers, whatever it has said before, so a stopped one is known by its silence.
// Several ranks come to their limits together, so they share a roll that one of them has just
// called.
#pragma once

#include "xylem/base/clock.h"

#include <cstdint>
#include <deque>
#include <set>

namespace xylem::runtime {

struct RollCall {
  struct Id {
    std::uint32_t caller = 0;  ///< World rank.
    std::uint32_t number = 0;  ///< Of the caller's roll calls; 0: none.
    bool operator==(const Id&) const = default;
  };

  Id id;
  std::uint64_t group = 0, sequence = 0;  ///< The call that is asked after.
  Clock::time_point since{};              ///< When this rank called or heard it.
  std::set<std::uint32_t> answered{};     ///< World ranks; the caller is one.
};

/// The roll calls that a rank knows of, its own and those of others. One thread at a time.
class RollCalls {
 public:
  /// A roll called no longer ago than this also serves another operation on the same call.
  static constexpr std::chrono::milliseconds kShared{100};
  static constexpr std::chrono::milliseconds kKept{5000};  ///< Then it is forgotten.

  explicit RollCalls(std::uint32_t rank) : rank_(rank) {}

  /// One that is recent enough to share, or null.
  const RollCall* recent(std::uint64_t group, std::uint64_t sequence, Clock::time_point now) const;
  /// One more of this rank's own.
  const RollCall& call(std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  /// Another rank has called one.
  void hear(RollCall::Id id, std::uint64_t group, std::uint64_t sequence, Clock::time_point now);
  void on_answer(RollCall::Id id, std::uint32_t rank);
  /// Null: there never was one, or it is forgotten.
  const RollCall* find(RollCall::Id id) const;
  void forget_old(Clock::time_point now);

 private:
  std::uint32_t rank_, number_ = 0;
  std::deque<RollCall> known_;  ///< Oldest first.
};

}  // namespace xylem::runtime
