// SPDX-License-Identifier: Apache-2.0
//
// The verb `topo`: shows a machine's topology.
#pragma once

#include "command_line.h"

namespace xylem::tools {

/// Returns the exit status.
int topo(TopoOptions options);

}  // namespace xylem::tools
