// SPDX-License-Identifier: Apache-2.0
//
// The names of NICs.
#pragma once

#include "xylem/topology/topology.h"

namespace xylem::topology {

/// Names every NIC after its first RDMA device, otherwise its first interface, otherwise its
/// address. Numbers in names are compared as numbers: mlx5_2 comes before mlx5_10. Ports are sorted
/// in the same way.
void name_nics(Machine& machine);

}  // namespace xylem::topology
