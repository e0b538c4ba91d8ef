// SPDX-License-Identifier: Apache-2.0
//
// GroupSpec: who the members of a communicator are, and by which numbers it is known, as plain
// data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::runtime {

/// Identity and members of a group. Equal on all members, except for `rank`.
struct GroupSpec {
  std::uint64_t uid = 0;  ///< Identifies the group within the job.
  /// The group's tag slot. No other group of any of its members uses the same tag slot.
  std::uint32_t slot = 0;
  std::uint32_t rank = 0;                  ///< This process's rank in the group.
  std::vector<std::uint32_t> world_ranks;  ///< For each member, its rank in the job.

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(world_ranks.size()); }
  std::uint32_t own_world_rank() const noexcept { return world_ranks[rank]; }
  /// Converts a rank of the job to a rank of the group. Empty if that rank is not a member.
  std::optional<std::uint32_t> rank_of(std::uint32_t world_rank) const noexcept {
    const auto found = std::ranges::find(world_ranks, world_rank);
    if (found == world_ranks.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - world_ranks.begin());
  }
};

}  // namespace xylem::runtime
