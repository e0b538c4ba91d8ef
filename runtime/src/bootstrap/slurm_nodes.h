// SPDX-License-Identifier: Apache-2.0
//
// Slurm's lists of nodes, for example "node[01-03,07],login1".
#pragma once

#include "xylem/base/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace xylem::runtime {

/// All nodes of a list, in order. Leading zeros are kept; a name may have several brackets.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

}  // namespace xylem::runtime
