// SPDX-License-Identifier: Apache-2.0
//
// Computes the positions of all parts of a picture, in pixels. Boxes within boxes represent
// packages, NUMA nodes, host bridges and switches; cards on one row inside them represent CPUs,
// GPUs and NICs. The connections between GPUs are drawn in a lane below. If the host is too wide, a
// second row is placed below the lane, upside down, so that its GPUs are next to the lane, too.
#pragma once

#include "places.h"
#include "xylem/topology/assignment.h"
#include "xylem/topology/rings.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::topology::picture {

struct Rect {
  double x = 0, y = 0, width = 0, height = 0;

  bool is_turned = false;  ///< True if the rectangle is in the row below the lane.

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double center() const { return x + width / 2; }
};

enum class BoxKind : std::uint8_t { package, numa_node, host_bridge, pcie_switch, unknown };

struct Box {
  Rect rect;
  BoxKind kind = BoxKind::unknown;
  std::string title;
  std::optional<GBps> uplink;  ///< Set for a switch: the bandwidth of its uplink.
};

enum class CardKind : std::uint8_t { cpus, gpu, nic, idle_nic };

struct Card {
  Rect rect;
  CardKind kind = CardKind::cpus;
  std::vector<std::string> lines;  ///< The first line is the name.
  std::optional<GBps> uplink;      ///< The bandwidth of the device's PCIe link.
  /// The rail of a NIC; for a GPU, the rail of its preferred NIC.
  std::optional<std::uint32_t> rail;
};

struct Picture {
  double width = 0, height = 0;
  std::string title, subtitle;
  std::string ring_line;  ///< The line of text on rings; empty if there is no ring.
  double title_bottom = 0;
  std::vector<Box> boxes;  ///< Outer boxes before inner ones.
  std::vector<Card> cards;
  std::vector<std::size_t> gpus;  ///< For each GPU, the index of its card.
  std::vector<std::size_t> nics;  ///< For each NIC, the index of its card.
  double lane_top = 0, lane_bottom = 0;
  std::optional<Rect> nvswitch;  ///< The bar in the lane that represents NVSwitches.
};

/// What a picture shows in addition to the machine itself.
struct Story {
  NicAssignment assignment;
  RingPlan rings;
  BandwidthBounds bounds;
};

Story story_of(const Topology& topology);

Picture lay_out(const Topology& topology, const Story& story);

}  // namespace xylem::topology::picture
