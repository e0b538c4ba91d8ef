// SPDX-License-Identifier: Apache-2.0
//
// GroupSpec: the members of a communicator and its names, as plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace xylem::runtime {

/// Alike on all members, but for `rank`.
struct GroupSpec {
  std::uint64_t uid = 0;   ///< Names the group in the job.
  std::uint32_t slot = 0;  ///< Its number in tags; no other group of any member has it.
  std::uint32_t rank = 0;  ///< This process's rank in the group.
  std::vector<std::uint32_t> world_ranks;  ///< Rank in the job of each member.

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(world_ranks.size()); }
  std::uint32_t own_world_rank() const noexcept { return world_ranks[rank]; }
  /// The rank in the group of a rank of the job; none if that is no member.
  std::optional<std::uint32_t> rank_of(std::uint32_t world_rank) const noexcept {
    const auto found = std::ranges::find(world_ranks, world_rank);
    if (found == world_ranks.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - world_ranks.begin());
  }
};

}  // namespace xylem::runtime
