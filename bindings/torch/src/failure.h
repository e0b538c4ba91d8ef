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

/// The exception for a failure: ValueError for invalid_argument, NotImplementedError for
/// unsupported, and torch.distributed.DistBackendError (a RuntimeError) for all other codes. Its
/// text ends with `note`.
std::exception_ptr exception_of(const Status& failure, const std::string& note = {});
/// Whether the failure makes the group unusable. A failure because of invalid arguments does not.
bool breaks_group(const Status& status) noexcept;
/// Whether the last calls of all ranks (Recorder) help to explain the failure. True for time-outs
/// and mismatches.
bool is_worth_a_record(const Status& status) noexcept;
/// A note for errors that name ranks of a group: the corresponding ranks of the world. Empty if
/// each rank of the group is equal to its rank in the world.
std::string world_ranks_note(const std::vector<std::uint64_t>& world_ranks);
/// A note on how to change the time limit of a group, for the failure of an operation with this
/// limit. Empty if the failure is not a time-out.
const char* remedy_of_group_limit(const Status& failure);
/// Throws exception_of(`status`, `note`) if `status` is a failure.
void check(const Status& status, const std::string& note = {});
/// Throws an error about the caller's arguments.
[[noreturn]] void refuse(const std::string& why);

}  // namespace xylem::pytorch
