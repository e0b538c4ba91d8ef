// SPDX-License-Identifier: Apache-2.0
//
// Paths: how close two devices are, in the classes that nvidia-smi and NCCL use, and the bandwidth
// of the narrowest link between them.
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
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// The classes of paths, the nearest first. `unknown` is last, since nothing is known about such a
/// path.
enum class PathClass : std::uint8_t { loc, nvl, pix, pxb, phb, node, sys, unknown };
/// "loc", "nvl", …; the matrix prints them in capitals.
std::string_view name(PathClass path_class) noexcept;

/// The path between two devices.
struct Path {
  PathClass path_class = PathClass::unknown;
  /// The kind of link of an `nvl` path; pcie for all other paths.
  LinkKind kind = LinkKind::pcie;
  /// Number of parallel NVLinks, if known; only for an `nvl` path.
  std::optional<std::uint32_t> nvlinks;
  /// Number of PCIe bridges on the path below the nearest bridge that both ends share.
  std::uint32_t bridges = 0;
  /// The smallest known bandwidth of a link on the path; absent if no bandwidth is known.
  std::optional<GBps> bandwidth;
  /// The origin of `bandwidth`.
  Origin origin = Origin::unknown;
  /// True if some part of the path has no known bandwidth (a link without a rate, or the fabric
  /// inside and between packages). `bandwidth` is then only an upper bound.
  bool bandwidth_is_bound = false;
  /// True if the class is based on an assumption. There are three cases. Both ends have the same
  /// list of several possible NUMA nodes, and are assumed to be near the same one: a `node` path
  /// might really be `sys`. Or the source does not distinguish host bridges: a `phb` path might be
  /// `node`. Or the ends reach different NVSwitches, which are assumed to be one fabric (`nvl`).
  bool locality_assumed = false;

  friend bool operator==(const Path&, const Path&) = default;
};

/// The best path of any kind between two devices. Each device is a GPU, a NIC or an NVSwitch that
/// exists in `topology`.
Path path(const Topology& topology, NodeRef a, NodeRef b);

/// The best path over PCIe and packages only, as `nvidia-smi topo -mp` shows it.
Path pci_path(const Topology& topology, NodeRef a, NodeRef b);

/// The NICs that are nearest to a GPU, regardless of their rates and states.
struct NearestNics {
  PathClass path_class = PathClass::unknown;  ///< The class of the path to each of the NICs.
  std::vector<std::uint32_t> nics;  ///< Indices of all equally near NICs, ascending. Empty: no NIC.

  friend bool operator==(const NearestNics&, const NearestNics&) = default;
};

/// Chooses among Topology::fabric_nics() the NICs with the lowest path class and, among these, with
/// the fewest bridges (Path::bridges). For the class `phb` and all later ones, bridges do not
/// count, and all NICs of the lowest class are equally near.
NearestNics nearest_nics(const Topology& topology, std::uint32_t gpu);
/// Like the function above, but chooses only among `nics` (indices in ascending order).
NearestNics nearest_nics(const Topology& topology,
                         std::uint32_t gpu,
                         std::span<const std::uint32_t> nics);

/// If there are several GPUs of a kind that NVLinks connect, by its name, but the source shows no
/// link between any of them: the name. Paths, bounds and plans then assume PCIe.
std::optional<std::string> gpus_without_their_links(const Topology& topology);

}  // namespace xylem::topology
