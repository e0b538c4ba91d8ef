// SPDX-License-Identifier: Apache-2.0
//
// find_mismatch: compares the calls of two ranks of a group.
#pragma once

#include "failure/situation.h"
#include "groups/call_history.h"
#include "groups/group_spec.h"

#include <cstdint>
#include <optional>
#include <string>

namespace xylem::runtime {

/// Compares the calls in `theirs`, the situation of the world rank `origin`, with the calls of this
/// rank. Returns a text about the first difference, for a verdict. Empty if no difference is found.
std::optional<std::string> find_mismatch(const CallHistory& history,
                                         const GroupSpec& group,
                                         std::uint32_t origin,
                                         const Situation& theirs);

}  // namespace xylem::runtime
