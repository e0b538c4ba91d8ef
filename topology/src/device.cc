// SPDX-License-Identifier: Apache-2.0
//
// Selects the GID of a port that can be routed farthest.
#include "xylem/topology/device.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace xylem::topology {

const Gid* preferred_gid(const Port& port) noexcept {
  const auto distance = [](const Gid& gid) {
    constexpr auto kByReach =
        std::to_array({GidType::roce_v2, GidType::roce_v1, GidType::infiniband, GidType::unknown});
    constexpr auto kByScope =
        std::to_array({GidScope::ipv4, GidScope::global, GidScope::link_local});
    const bool is_ethernet = gid.type != GidType::infiniband;
    return std::tuple(std::ranges::find(kByReach, gid.type) - kByReach.begin(),
                      is_ethernet ? std::ranges::find(kByScope, gid.scope) - kByScope.begin() : 0,
                      gid.index);
  };
  const auto best = std::ranges::min_element(port.gids, {}, distance);
  return best == port.gids.end() || best->type == GidType::unknown ? nullptr : &*best;
}

}  // namespace xylem::topology
