// SPDX-License-Identifier: Apache-2.0
//
// The lists of a machine as separate JSON texts. File formats that cannot express all facts contain
// the remaining facts in this form.
#pragma once

#include "xylem/topology/topology.h"

#include <map>
#include <string>
#include <string_view>

namespace xylem::topology {

/// The lists of the machine. The keys are those in docs/topology.md, such as "gpus"; empty lists
/// are left out.
std::map<std::string, std::string> json_parts(const Machine& machine);

/// Replaces one list of `machine` by the list in `text`. On failure the error says what is wrong
/// with the text.
Status replace_part(Machine& machine, std::string_view key, std::string_view text);

}  // namespace xylem::topology
