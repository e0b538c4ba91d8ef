// SPDX-License-Identifier: Apache-2.0
//
// How Xylem's failures reach Python: by remedy, as the exceptions that torch.distributed's users
// catch.
#pragma once

#include "xylem/xylem.h"

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace xylem::pytorch {

/// invalid_argument is ValueError, unsupported NotImplementedError, anything else
/// torch.distributed.DistBackendError (a RuntimeError).
std::exception_ptr exception_of(const Status& failure, const std::string& note = {});
/// Whether the group is done for: not by what a call excludes.
bool breaks_group(const Status& status) noexcept;
/// A note for errors that name ranks of a group: which these are in the world. Empty where they are
/// the same.
std::string world_ranks_note(const std::vector<std::uint64_t>& world_ranks);
/// Throws it, unless `status` is OK.
void check(const Status& status, const std::string& note = {});
/// Refuses the caller's arguments.
[[noreturn]] void refuse(const std::string& why);

}  // namespace xylem::pytorch
