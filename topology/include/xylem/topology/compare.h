// SPDX-License-Identifier: Apache-2.0
//
// A topology beside another, and beside what `nvidia-smi topo -m` printed on a machine.
#pragma once

#include "xylem/base/status.h"
#include "xylem/topology/topology.h"

#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// A cell in which the two differ. A device that only one of them has differs in the cell of its
/// own row and column.
struct MatrixDifference {
  std::string row;     ///< "GPU0", "mlx5_0".
  std::string column;  ///< Likewise, or "CPU Affinity", "NUMA Affinity".
  std::string there;   ///< As nvidia-smi printed it; "absent" for a device it lacks.
  std::string here;    ///< As to_matrix() would.

  friend bool operator==(const MatrixDifference&, const MatrixDifference&) = default;
};

/// Compares cell by cell with `text`, the output of `nvidia-smi topo -m` or, where it shows no
/// NVLink, `topo -mp`. GPUs are matched by their numbers (the order of bus ids in both), NICs by
/// name, which the legend or the heading tells; without a legend only GPUs are compared. A comment
/// ("# …") and terminal colours are passed over. Cells that are empty there are not compared.
/// `invalid_argument` naming source and line if the text is no such matrix.
Result<std::vector<MatrixDifference>> compare_matrix(const Topology& topology,
                                                     std::string_view text,
                                                     std::string_view source);

/// A fact in which two machines differ.
struct TopologyDifference {
  std::string thing;  ///< "NIC at 0000:01:00.0", "NUMA node 1", "nvlink from … to …".
  std::string fact;   ///< "name", "link"; empty if one of them lacks the thing.
  std::string a, b;   ///< Its values; "here" and "absent" for the thing itself.

  friend bool operator==(const TopologyDifference&, const TopologyDifference&) = default;
};

/// Compares two machines of a kind: devices by PCI address, NUMA nodes by number. Host names, uuids
/// and sizes of memory are each machine's own and not compared; nor is what only one source tells.
/// Empty for a machine and itself.
std::vector<TopologyDifference> diff(const Topology& a, const Topology& b);

}  // namespace xylem::topology
