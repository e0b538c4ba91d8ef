// SPDX-License-Identifier: Apache-2.0
//
// Writers: a topology as a tree for people, as the matrix of `nvidia-smi topo -m`, as a picture,
// and as JSON for programs. All are pure functions of the value and end with a newline.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace xylem::topology {

/// The version of the JSON's schema (docs/topology.md). It changes when an older reader would
/// misread.
inline constexpr std::uint32_t kJsonVersion = 1;

struct TreeOptions {
  bool ascii = false;  ///< Branches of "|-" and "`-" in place of line-drawing characters.
};

/// Packages, NUMA nodes, switches, GPUs with their nearest NICs, NICs with state and rate,
/// interfaces, rings over the GPUs. A bridge is shown where the tree branches; root ports and the
/// like, which lead to one device, are left out.
std::string to_tree(const Topology& topology, const TreeOptions& options = {});

/// A header row, a row for each GPU and fabric NIC, and a legend ("NIC0: mlx5_0"). Cells are
/// separated by tabs, padded to align. "NV4" is four NVLinks, "NV" an unknown number of them,
/// "XGMI" AMD's, "?" an unknown path.
std::string to_matrix(const Topology& topology);

/// XML of hwloc, schema 2, which lstopo reads where the source tells of CPUs; read_hwloc_xml()
/// gives the same value back.
std::string to_hwloc_xml(const Topology& topology);

/// XML of NCCL, for NCCL_TOPO_FILE; read_nccl_xml() gives back what came from there. Of other
/// machines it holds what the form can (docs/topology.md).
std::string to_nccl_xml(const Topology& topology);

/// A picture for pages and slides, self-contained: boxes for packages, NUMA nodes and switches,
/// cards for GPUs and NICs with their links, each GPU's NIC in its rail's colour, and a ring over
/// the GPUs.
std::string to_svg(const Topology& topology);
/// A page with that picture, what each GPU uses and why, and the matrix.
std::string to_html(const Topology& topology);

/// What a device is, where, and, of a GPU, which NICs serve it and why; of a NIC, which GPUs it
/// serves, or why none. A few lines.
std::string explain(const Topology& topology, NodeRef device);
/// The path between two devices (GPU, NIC): class, bandwidth and whose number that is.
std::string explain(const Topology& topology, NodeRef a, NodeRef b);

/// A GPU or NIC by the name that people use: "gpu0", "nic2" (as the matrix numbers them), "mlx5_2",
/// "eth0", "0000:3b:00.0". invalid_argument lists those that there are.
Result<NodeRef> find_device(const Topology& topology, std::string_view name);

/// The whole value; read_json gives it back. Under "derived" stand the fingerprint and each GPU's
/// nearest NICs, for programs that do not link us; the reader ignores them.
std::string to_json(const Topology& topology);

}  // namespace xylem::topology
