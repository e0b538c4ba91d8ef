// SPDX-License-Identifier: Apache-2.0
//
// Whose topology a verb is about.
#pragma once

#include "xylem/topology/topology.h"

#include <string>

namespace xylem::tools {

/// The machine that `source` names: a file or, where there is none of that name, a description
/// ("2 packages, 8 gpus"); this machine if it is empty.
Result<topology::Topology> machine_of(const std::string& source);

}  // namespace xylem::tools
