// SPDX-License-Identifier: Apache-2.0
//
// Links and their bandwidth. A Rate states the origin of its bandwidth. An unknown bandwidth is
// absent, never zero.
#pragma once

#include "xylem/base/quantity.h"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::topology {

/// The origin of a bandwidth.
enum class Origin : std::uint8_t {
  unknown,   ///< The bandwidth is unknown.
  read,      ///< Stated by the file or system that was read.
  derived,   ///< Computed from width and speed.
  measured,  ///< Measured on this machine.
};
std::string_view name(Origin origin) noexcept;

/// The bandwidth of a link in one direction, with its origin.
struct Rate {
  std::optional<GBps> bandwidth;
  Origin origin = Origin::unknown;     ///< The origin of `bandwidth`.
  std::optional<std::uint32_t> width;  ///< Number of PCIe lanes, or of parallel NVLinks.
  std::optional<double> speed;  ///< The speed of one PCIe lane, in 10^9 transfers per second.

  friend bool operator==(const Rate&, const Rate&) = default;
};

/// The bandwidth of `width` PCIe lanes at `gigatransfers` (10^9 transfers per second) after line
/// coding: 8b/10b up to 5 GT/s (generations 1 and 2), 128b/130b up to 32 GT/s, and 242 of 256 bytes
/// in a flit above that. Packet headers are not deducted.
Rate pcie_rate(double gigatransfers, std::uint32_t width);

/// The PCIe generation whose lanes run at `gigatransfers` (16 gives 4); nothing for other speeds.
std::optional<int> pcie_generation(double gigatransfers) noexcept;

enum class NodeKind : std::uint8_t {
  gpu,
  nic,
  nvswitch,
  bridge,
  host_bridge,
  numa_node,
  package,
};
std::string_view name(NodeKind kind) noexcept;

/// Identifies one part of a machine: the `index`-th in the list of its kind. Its text form is
/// "gpu0" or "host_bridge2", for example.
struct NodeRef {
  NodeKind kind = NodeKind::gpu;
  std::uint32_t index = 0;

  static Result<NodeRef> parse(std::string_view text);
  std::string to_string() const;

  friend auto operator<=>(const NodeRef&, const NodeRef&) = default;
};

enum class LinkKind : std::uint8_t {
  pcie,
  nvlink,  ///< Between GPUs, from a GPU to an NVSwitch, or (POWER8, POWER9) from a GPU to a
           ///< package.
  xgmi,    ///< AMD's links between GPUs.
};
std::string_view name(LinkKind kind) noexcept;

/// A link outside the PCIe tree. A Link has no direction, so `a < b`; parallel links between a pair
/// are one Link of greater width. A PCIe link is no Link, but the `uplink` of its device.
struct Link {
  NodeRef a;
  NodeRef b;
  LinkKind kind = LinkKind::nvlink;
  Rate rate;

  friend bool operator==(const Link&, const Link&) = default;
};

}  // namespace xylem::topology
