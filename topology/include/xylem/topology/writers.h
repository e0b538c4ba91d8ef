// SPDX-License-Identifier: Apache-2.0
//
// Writers: show a topology as a tree for people, as the matrix of `nvidia-smi topo -m`, as a
// picture, and in files for programs. All are pure functions, and their output ends with a newline.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// The version of the JSON schema (docs/topology.md). The version changes when older readers would
/// misread the new schema.
inline constexpr std::uint32_t kJsonVersion = 1;

struct TreeOptions {
  bool ascii = false;  ///< Draws branches with "|-" and "`-" instead of line-drawing characters.
};

/// Shows packages, NUMA nodes, switches, GPUs with their nearest NICs, NICs with state and rate,
/// interfaces, and rings over the GPUs. A bridge is shown only where the tree branches; a bridge
/// that leads to a single device, such as a root port, is left out.
std::string to_tree(const Topology& topology, const TreeOptions& options = {});

/// A heading and facts about NVIDIA's driver: its version, why a library of the driver could not be
/// queried, and what GPUs, processes and NICs can do with the memory of the GPUs (peer access, CUDA
/// IPC, GPUDirect RDMA). Empty if nothing is known. to_tree() shows these lines, too.
std::vector<std::string> driver_lines(const Topology& topology);

/// A header row, one row for each GPU and fabric NIC, and a legend ("NIC0: mlx5_0"). Cells are
/// separated by tabs and padded so that they align. "NV4" means four NVLinks, "NV" an unknown
/// number of them, "XGMI" AMD's links, "?" an unknown path.
std::string to_matrix(const Topology& topology);

/// hwloc's XML, schema 2. lstopo can read it if the topology lists CPUs; read_hwloc_xml() returns
/// an equal value.
std::string to_hwloc_xml(const Topology& topology);

/// NCCL's XML, for NCCL_TOPO_FILE. For a topology from read_nccl_xml(), the XML contains all facts.
/// For other topologies, it contains the facts that NCCL's format can express (docs/topology.md).
std::string to_nccl_xml(const Topology& topology);

/// A self-contained SVG picture for pages and slides: boxes for packages, NUMA nodes and switches,
/// cards for GPUs and NICs with their links, each GPU's NIC in the colour of its rail, and a ring
/// over the GPUs.
std::string to_svg(const Topology& topology);
/// An HTML page with the picture of to_svg(), the NICs that each GPU uses and why, and the matrix.
std::string to_html(const Topology& topology);

/// A few lines on a device: what and where it is; for a GPU which NICs serve it and why; for a NIC
/// which GPUs it serves, or why it serves none.
std::string explain(const Topology& topology, NodeRef device);
/// The path between two devices (GPU or NIC): class, bandwidth, and the origin of the bandwidth.
std::string explain(const Topology& topology, NodeRef a, NodeRef b);

/// Finds a GPU or NIC by a common name: "gpu0", "nic2" (numbered as in the matrix), "mlx5_2",
/// "eth0" or "0000:3b:00.0". The error invalid_argument lists the devices that exist.
Result<NodeRef> find_device(const Topology& topology, std::string_view name);

/// All facts of the topology; read_json() returns an equal topology. The key "derived" adds the
/// fingerprint and each GPU's nearest NICs for programs that do not link Xylem; read_json() ignores
/// this key.
std::string to_json(const Topology& topology);

}  // namespace xylem::topology
