// SPDX-License-Identifier: Apache-2.0
//
// What a NIC is called.
#pragma once

#include "xylem/topology/topology.h"

namespace xylem::topology {

/// Names every NIC by its first RDMA device, else its first interface, else its address. "First"
/// counts numbers as numbers: mlx5_2 comes before mlx5_10. Ports are put in the same order.
void name_nics(Machine& machine);

}  // namespace xylem::topology
