// SPDX-License-Identifier: Apache-2.0
//
// Converts Xylem's failures into the exceptions that users of torch.distributed catch.
#pragma once

#include "xylem/xylem.h"

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace xylem::pytorch {

/// ValueError for invalid_argument, NotImplementedError for unsupported, and
/// torch.distributed.DistBackendError (a RuntimeError) for all others.
std::exception_ptr exception_of(const Status& failure, const std::string& note = {});
/// Whether the failure makes the group unusable. A call with invalid arguments does not.
bool breaks_group(const Status& status) noexcept;
/// Whether the records of all ranks explain the failure better than its message does.
bool is_worth_a_record(const Status& status) noexcept;
/// A note for errors that name ranks of a group: the corresponding ranks of the world. Empty if
/// they are equal.
std::string world_ranks_note(const std::vector<std::uint64_t>& world_ranks);
/// A note for failures of operations that have the time limit of their group: how to change this
/// limit. Empty unless the failure is a time-out.
const char* remedy_of_group_limit(const Status& failure);
/// Throws the failure, unless `status` is OK.
void check(const Status& status, const std::string& note = {});
/// Throws an error about the caller's arguments.
[[noreturn]] void refuse(const std::string& why);

}  // namespace xylem::pytorch
