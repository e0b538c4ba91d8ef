// SPDX-License-Identifier: Apache-2.0
//
// Words for the states and kinds of devices.
#include "xylem/topology/device.h"

#include "enum_names.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace xylem::topology {

std::string_view name(PortState state) noexcept { return name_of(state); }
std::string_view name(LinkLayer layer) noexcept { return name_of(layer); }
std::string_view name(GidType type) noexcept { return name_of(type); }
std::string_view name(GidScope scope) noexcept { return name_of(scope); }
std::string_view name(InterfaceState state) noexcept { return name_of(state); }
std::string_view name(InterfaceKind kind) noexcept { return name_of(kind); }

const Gid* preferred_gid(const Port& port) noexcept {
  const auto distance = [](const Gid& gid) {
    constexpr auto kByReach =
        std::to_array({GidScope::ipv4, GidScope::global, GidScope::link_local});
    const bool is_routed = gid.type == GidType::roce_v2;
    return std::tuple(!is_routed,
                      is_routed ? std::ranges::find(kByReach, gid.scope) - kByReach.begin() : 0,
                      gid.index);
  };
  const auto best = std::ranges::min_element(port.gids, {}, distance);
  return best == port.gids.end() ? nullptr : &*best;
}

}  // namespace xylem::topology
