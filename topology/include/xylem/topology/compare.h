// SPDX-License-Identifier: Apache-2.0
//
// What `nvidia-smi topo -m` printed on a machine, beside what a topology says of it.
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

}  // namespace xylem::topology
