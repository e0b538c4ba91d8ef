// SPDX-License-Identifier: Apache-2.0
//
// The words for enumerators, one table each, read in both directions: printed, and parsed from
// JSON.
#pragma once

#include "xylem/topology/device.h"
#include "xylem/topology/link.h"
#include "xylem/topology/path.h"

#include <array>
#include <optional>
#include <string_view>

namespace xylem::topology {

/// Names in the order of the enumerators.
template <typename E>
inline constexpr std::array<std::string_view, 0> kNames{};

template <>
inline constexpr std::array<std::string_view, 4> kNames<Origin>{"unknown", "read", "derived",
                                                                "measured"};
template <>
inline constexpr std::array<std::string_view, 7> kNames<NodeKind>{
    "gpu", "nic", "nvswitch", "bridge", "host_bridge", "numa_node", "package"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<LinkKind>{"pcie", "nvlink", "xgmi"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<PortState>{
    "unknown", "down", "initializing", "armed", "active"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<LinkLayer>{"unknown", "infiniband",
                                                                   "ethernet"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<InterfaceState>{"unknown", "down", "up"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<InterfaceKind>{"physical", "bond", "bridge",
                                                                       "loopback", "other_virtual"};
template <>
inline constexpr std::array<std::string_view, 8> kNames<PathClass>{"loc", "nvl",  "pix", "pxb",
                                                                   "phb", "node", "sys", "unknown"};

/// The name of `value`; "unknown" for a number that is no enumerator.
template <typename E>
constexpr std::string_view name_of(E value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < kNames<E>.size() ? kNames<E>[index] : std::string_view("unknown");
}

template <typename E>
constexpr std::optional<E> enumerator_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames<E>.size(); ++i) {
    if (kNames<E>[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace xylem::topology
