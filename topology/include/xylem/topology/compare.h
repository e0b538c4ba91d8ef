// SPDX-License-Identifier: Apache-2.0
//
// Compares a topology with another one, and with the output of `nvidia-smi topo -m` on a machine.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// A cell in which the matrix of nvidia-smi and the matrix of the topology differ. A device that
/// only one matrix contains is reported in the cell of its own row and column.
struct MatrixDifference {
  std::string row;     ///< "GPU0", "mlx5_0".
  std::string column;  ///< "GPU1", "mlx5_1", "CPU Affinity" or "NUMA Affinity".
  std::string there;   ///< The cell as nvidia-smi printed it; "absent" if it shows no such device.
  std::string here;    ///< The cell as to_matrix() prints it, or "absent".

  friend bool operator==(const MatrixDifference&, const MatrixDifference&) = default;
};

/// Compares the topology cell by cell with `text`, the output of `nvidia-smi topo -m` or, if the
/// text shows no NVLink, of `topo -mp`. GPUs are matched by number (nvidia-smi and Xylem both
/// number them in the order of bus ids). NICs are matched by name, which comes from the legend or
/// the heading; without names only GPUs are compared. Comments ("# …") and terminal colours are
/// ignored. Cells that are empty in `text` are not compared. Fails with `invalid_argument`, naming
/// source and line, if the text is not a matrix of nvidia-smi.
Result<std::vector<MatrixDifference>> compare_matrix(const Topology& topology,
                                                     std::string_view text,
                                                     std::string_view source);

/// A fact in which two machines differ.
struct TopologyDifference {
  std::string thing;  ///< "NIC at 0000:01:00.0", "NUMA node 1", "nvlink from … to …".
  std::string fact;   ///< "name", "link"; empty if one of the machines lacks the thing.
  std::string a, b;   ///< The facts of a and b; "here" or "absent" if one machine lacks the thing.

  friend bool operator==(const TopologyDifference&, const TopologyDifference&) = default;
};

/// Compares two machines of the same kind: devices by PCI address, NUMA nodes by number. Host
/// names, UUIDs and memory sizes differ between any two machines so they are not compared. Facts
/// that are known for only one machine are not compared either. The result is empty for two equal
/// machines.
std::vector<TopologyDifference> diff(const Topology& a, const Topology& b);

}  // namespace xylem::topology
