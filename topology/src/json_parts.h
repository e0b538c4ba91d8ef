// SPDX-License-Identifier: Apache-2.0
//
// The lists of a machine as JSON, each by itself: for forms that have no room for all facts, and
// tell some beside their own.
#pragma once

#include "xylem/topology/topology.h"

#include <map>
#include <string>
#include <string_view>

namespace xylem::topology {

/// By the keys of docs/topology.md ("gpus"); those that are empty are left out.
std::map<std::string, std::string> json_parts(const Machine& machine);

/// Reads one of them in place of what `machine` has; an error says what is wrong with it.
Status replace_part(Machine& machine, std::string_view key, std::string_view text);

}  // namespace xylem::topology
