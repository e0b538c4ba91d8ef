// SPDX-License-Identifier: Apache-2.0
//
// The names of enumerators, in one table for each enumeration. The tables serve both printing and
// parsing of JSON.
#pragma once

#include "xylem/topology/device.h"
#include "xylem/topology/link.h"
#include "xylem/topology/path.h"

#include <array>
#include <optional>
#include <string_view>

namespace xylem::topology {

/// Names in the order of the enumerators.
constexpr auto names_of(Origin /*of*/) noexcept {
  return std::to_array<std::string_view>({"unknown", "read", "derived", "measured"});
}
constexpr auto names_of(NodeKind /*of*/) noexcept {
  return std::to_array<std::string_view>(
      {"gpu", "nic", "nvswitch", "bridge", "host_bridge", "numa_node", "package"});
}
constexpr auto names_of(LinkKind /*of*/) noexcept {
  return std::to_array<std::string_view>({"pcie", "nvlink", "xgmi"});
}
constexpr auto names_of(PeerAccess /*of*/) noexcept {
  return std::to_array<std::string_view>(
      {"unknown", "yes", "no", "no_by_chipset", "no_by_gpu", "no_by_topology", "disabled"});
}
constexpr auto names_of(PortState /*of*/) noexcept {
  return std::to_array<std::string_view>({"unknown", "down", "initializing", "armed", "active"});
}
constexpr auto names_of(LinkLayer /*of*/) noexcept {
  return std::to_array<std::string_view>({"unknown", "infiniband", "ethernet"});
}
constexpr auto names_of(GidType /*of*/) noexcept {
  return std::to_array<std::string_view>({"unknown", "infiniband", "roce_v1", "roce_v2"});
}
constexpr auto names_of(GidScope /*of*/) noexcept {
  return std::to_array<std::string_view>({"ipv4", "link_local", "global"});
}
constexpr auto names_of(InterfaceState /*of*/) noexcept {
  return std::to_array<std::string_view>({"unknown", "down", "up"});
}
constexpr auto names_of(InterfaceKind /*of*/) noexcept {
  return std::to_array<std::string_view>(
      {"physical", "bond", "bridge", "loopback", "other_virtual"});
}
constexpr auto names_of(PathClass /*of*/) noexcept {
  return std::to_array<std::string_view>(
      {"loc", "nvl", "pix", "pxb", "phb", "node", "sys", "unknown"});
}

/// The name of `value`; "unknown" for a number that is not an enumerator.
template <typename E>
constexpr std::string_view name_of(E value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  constexpr auto names = names_of(E{});
  return index < names.size() ? names[index] : std::string_view("unknown");
}

template <typename E>
constexpr std::optional<E> enumerator_of(std::string_view name) noexcept {
  constexpr auto names = names_of(E{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace xylem::topology
