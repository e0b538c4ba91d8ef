// SPDX-License-Identifier: Apache-2.0
//
// GroupSpec: the members of a communicator and the numbers that identify it, as plain data.
#pragma once

#include "xylem/transport/transport.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// Identity and members of a group. Equal on all members, except for `rank` and `timeout`.
struct GroupSpec {
  std::uint64_t uid = 0;                   ///< Identifies the group within the job.
  std::uint32_t rank = 0;                  ///< This process's rank in the group.
  std::vector<std::uint32_t> world_ranks;  ///< For each member, its rank in the job.
  /// slots[i]: the tag slot that member i uses for this group. The tags of all messages to member i
  /// contain it. A member uses a tag slot for one group at a time.
  std::vector<std::uint32_t> slots;
  /// True for the companion of a group. A companion has the same tag slots as the group, but tags
  /// of another kind (TagKind::companion).
  bool is_companion = false;
  /// True if the group begins with Binding::same_memory.
  bool has_same_memory = false;
  /// The time limit of each operation for which the user has set none.
  std::chrono::nanoseconds timeout{};

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(world_ranks.size()); }
  /// The uid of the group's companion, even if the companion has not been made yet.
  std::uint64_t companion_uid() const noexcept;
  std::uint32_t slot() const noexcept { return slots[rank]; }
  std::uint32_t own_world_rank() const noexcept { return world_ranks[rank]; }
  /// The number of the group in logs and messages: its tag slot at the first member. 0 is the
  /// world.
  std::uint32_t number() const noexcept { return slots.front(); }
  /// tags()[i]: the tag bits that identify the collectives of this group in messages to member i.
  std::vector<transport::Tag> tags() const;
  /// "communicator 0" for the world; "communicator 3 of ranks 1, 4" for others, since groups with
  /// different first members may have equal numbers. The ranks are world ranks. For large groups,
  /// only the first ones are listed.
  std::string label() const;
  /// Converts a rank of the job to a rank of the group. Empty if that rank is not a member.
  std::optional<std::uint32_t> rank_of(std::uint32_t world_rank) const noexcept {
    const auto found = std::ranges::find(world_ranks, world_rank);
    if (found == world_ranks.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - world_ranks.begin());
  }
};

}  // namespace xylem::runtime
