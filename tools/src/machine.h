// SPDX-License-Identifier: Apache-2.0
//
// Finds the topology that a verb uses.
#pragma once

#include "xylem/topology/topology.h"

#include <string>

namespace xylem::tools {

/// Whether a word of the command line can be a source for machine_of(): a file that exists, or a
/// description.
bool is_machine(const std::string& word);

/// The machine that `source` names: a file; if there is none with that name, a description such as
/// "2 packages, 8 gpus"; if `source` is empty, this machine.
Result<topology::Topology> machine_of(const std::string& source);

}  // namespace xylem::tools
