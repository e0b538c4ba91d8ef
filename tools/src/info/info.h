// SPDX-License-Identifier: Apache-2.0
//
// The verb `info`: shows Xylem's settings on this host and where they come from.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/info.h"
#include "xylem/topology/topology.h"

#include <string>

namespace xylem::tools {

/// The text for these facts. `machine` is this host's topology, or the error of its discovery.
std::string info_text(const Info& facts, const Result<topology::Topology>& machine);

/// Prints the text for this host. Returns the exit status.
int info();

}  // namespace xylem::tools
