// SPDX-License-Identifier: Apache-2.0
//
// The lists of a machine as separate JSON texts, for file formats that cannot express all facts and
// carry the others in addition.
#pragma once

#include "xylem/topology/topology.h"

#include <map>
#include <string>
#include <string_view>

namespace xylem::topology {

/// By the keys in docs/topology.md, such as "gpus"; empty lists are left out.
std::map<std::string, std::string> json_parts(const Machine& machine);

/// Replaces one list of `machine` by the one in `text`. On failure the error says what is wrong
/// with it.
Status replace_part(Machine& machine, std::string_view key, std::string_view text);

}  // namespace xylem::topology
