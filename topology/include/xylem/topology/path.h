// SPDX-License-Identifier: Apache-2.0
//
// Paths: how close two devices are, in the ladder that nvidia-smi and NCCL made common, and how
// much the narrowest link between them carries.
//
//   LOC  the same device                         PHB   one host bridge above both, no switch
//   NVL  NVLink or XGMI, perhaps by an NVSwitch  NODE  two host bridges of one NUMA node
//   PIX  at most one bridge each below a switch  SYS   different NUMA nodes
//   PXB  more bridges below a common switch
#pragma once

#include "xylem/topology/topology.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// Nearest first. `unknown` is last: nothing is promised of it.
enum class PathClass : std::uint8_t { loc, nvl, pix, pxb, phb, node, sys, unknown };
/// "loc", "nvl", …; the matrix prints them in capitals.
std::string_view name(PathClass path_class) noexcept;

/// The way between two devices.
struct Path {
  PathClass path_class = PathClass::unknown;
  /// What carries an `nvl` path; pcie for all others.
  LinkKind kind = LinkKind::pcie;
  /// NVLinks side by side, where known; only on an `nvl` path.
  std::optional<std::uint32_t> nvlinks;
  /// PCIe bridges passed below the nearest common one.
  std::uint32_t bridges = 0;
  /// The least bandwidth of the links on the way that are known; absent when none is.
  std::optional<GBps> bandwidth;
  /// Of the narrowest link.
  Origin origin = Origin::unknown;
  /// Some part of the way has no known bandwidth (a link without a rate, or the fabric inside and
  /// between packages): `bandwidth` is then only an upper bound.
  bool bandwidth_is_bound = false;
  /// Both ends are near one of several NUMA nodes, the same ones, and we take them for neighbours:
  /// a `node` path could be `sys` in truth. Or the source does not tell host bridges apart: a `phb`
  /// path could be `node`. Or they reach different NVSwitches, which we take for one fabric
  /// (`nvl`).
  bool locality_assumed = false;

  friend bool operator==(const Path&, const Path&) = default;
};

/// The best path between two devices (GPU, NIC or NVSwitch, in range), whatever carries it.
Path path(const Topology& topology, NodeRef a, NodeRef b);

/// The same over PCIe and the packages alone, as `nvidia-smi topo -mp` shows it.
Path pci_path(const Topology& topology, NodeRef a, NodeRef b);

/// The NICs a GPU should use, by place alone.
struct NearestNics {
  PathClass path_class = PathClass::unknown;  ///< Of all of them.
  std::vector<std::uint32_t> nics;            ///< Indices, ascending; all ties. Empty: no NIC.

  friend bool operator==(const NearestNics&, const NearestNics&) = default;
};

/// Among Topology::fabric_nics(): the lowest class, then the fewest bridges below a common one.
/// From a host bridge on, or when places are unknown, no NIC is nearer than another of its class,
/// so all of these are listed.
NearestNics nearest_nics(const Topology& topology, std::uint32_t gpu);
/// The same among `nics`, indices in ascending order.
NearestNics nearest_nics(const Topology& topology,
                         std::uint32_t gpu,
                         std::span<const std::uint32_t> nics);

}  // namespace xylem::topology
