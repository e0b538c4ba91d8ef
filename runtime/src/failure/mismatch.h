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

/// Compares the calls in the situation of the world rank `origin` with those of this rank. Returns
/// the text of a verdict about the first difference, or nothing if the calls agree as far as both
/// are known.
std::optional<std::string> find_mismatch(const CallHistory& history,
                                         const GroupSpec& group,
                                         std::uint32_t origin,
                                         const Situation& theirs);

}  // namespace xylem::runtime
