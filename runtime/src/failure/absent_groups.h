// SPDX-License-Identifier: Apache-2.0
//
// AbsentGroups: the messages of other ranks about groups that do not exist at this rank. Other
// ranks may use a group before it has been made at this rank; the messages about it are kept until
// then. Of a group that has ended at this rank, only the uid is kept.
#pragma once

#include "failure/situation.h"
#include "xylem/base/clock.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace xylem::runtime {

/// Used by one thread at a time. Only the newest messages of each kind are kept, so that they take
/// a limited amount of memory.
class AbsentGroups {
 public:
  static constexpr std::size_t kMostKept = 64;  ///< Of each kind of message.
  static constexpr std::size_t kMostEnded = 4096;

  /// A roll call, which this rank has to answer.
  struct Roll {
    RollCallId id;
    std::uint64_t group = 0, sequence = 0;
  };
  /// A member has left the group.
  struct Goodbye {
    std::uint64_t group = 0;
    std::uint32_t rank = 0;  ///< The world rank of the member.
    Clock::time_point at{};
  };
  /// The messages about one group.
  struct Kept {
    std::vector<Roll> rolls;
    std::vector<Goodbye> goodbyes;
    std::optional<Verdict> verdict;  ///< The first verdict on the group.
  };

  /// Store a message about a group. Messages about groups that have ended here are ignored.
  void keep(const Roll& roll);
  void keep(const Goodbye& goodbye);
  void keep(const Verdict& verdict);
  /// Removes and returns the messages about a group. Call this when the group has been made.
  Kept take(std::uint64_t group);

  /// Call this when the group has ended at this rank.
  void note_end(std::uint64_t group);
  /// True if the group existed at this rank and has ended.
  bool has_ended(std::uint64_t group) const;

 private:
  std::deque<Roll> rolls_;
  std::deque<Goodbye> goodbyes_;
  std::deque<Verdict> verdicts_;
  std::deque<std::uint64_t> ended_;
};

}  // namespace xylem::runtime
