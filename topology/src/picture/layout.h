// SPDX-License-Identifier: Apache-2.0
//
// Where everything of a picture goes, in pixels: boxes within boxes for packages, NUMA nodes, host
// bridges and switches; in them cards for CPUs, GPUs and NICs on one row. What joins GPUs is drawn
// in the lane below. A host that is too wide has a second row below the lane, which is turned over
// so that its GPUs are beside the lane, too.
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

  bool is_turned = false;  ///< In the row below the lane.

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double center() const { return x + width / 2; }
};

enum class BoxKind : std::uint8_t { package, numa_node, host_bridge, pcie_switch, unknown };

struct Box {
  Rect rect;
  BoxKind kind = BoxKind::unknown;
  std::string title;
  std::optional<GBps> uplink;  ///< Of a switch.
};

enum class CardKind : std::uint8_t { cpus, gpu, nic, idle_nic };

struct Card {
  Rect rect;
  CardKind kind = CardKind::cpus;
  std::vector<std::string> lines;     ///< The first is the name.
  std::optional<GBps> uplink;         ///< PCIe's.
  std::optional<std::uint32_t> rail;  ///< Of a NIC its own, of a GPU that of the NIC it prefers.
};

struct Picture {
  double width = 0, height = 0;
  std::string title, subtitle;
  std::string ring_line;  ///< What is said of rings; empty where there is none.
  double title_bottom = 0;
  std::vector<Box> boxes;  ///< Outer before inner.
  std::vector<Card> cards;
  std::vector<std::size_t> gpus;  ///< Cards by GPU.
  std::vector<std::size_t> nics;  ///< Cards by NIC.
  double lane_top = 0, lane_bottom = 0;
  std::optional<Rect> nvswitch;  ///< A bar in the lane.
};

/// What a picture shows beside the machine itself.
struct Story {
  NicAssignment assignment;
  RingPlan rings;
  BandwidthBounds bounds;
};

Story story_of(const Topology& topology);

Picture lay_out(const Topology& topology, const Story& story);

}  // namespace xylem::topology::picture
