// SPDX-License-Identifier: Apache-2.0
//
// AbsentGroups: what other ranks say of groups that do not exist at this rank. A group may not have
// been made here yet, although other ranks use it already. What they say of it is kept until it is
// made. Of a group that existed here only the uid is remembered.
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
    std::uint32_t rank = 0;  ///< In the job.
    Clock::time_point at{};
  };
  /// The messages about one group.
  struct Kept {
    std::vector<Roll> rolls;
    std::vector<Goodbye> goodbyes;
    std::optional<Verdict> verdict;  ///< The first verdict on the group.
  };

  /// Keep a message about a group. They ignore groups that have existed here.
  void keep(const Roll& roll);
  void keep(const Goodbye& goodbye);
  void keep(const Verdict& verdict);
  /// Returns and forgets what was kept about a group, which exists from now on.
  Kept take(std::uint64_t group);

  /// The group does not exist here any more.
  void note_end(std::uint64_t group);
  /// True if the group existed here, and does no more.
  bool has_ended(std::uint64_t group) const;

 private:
  std::deque<Roll> rolls_;
  std::deque<Goodbye> goodbyes_;
  std::deque<Verdict> verdicts_;
  std::deque<std::uint64_t> ended_;
};

}  // namespace xylem::runtime
