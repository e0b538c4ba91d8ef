// SPDX-License-Identifier: Apache-2.0
//
// Ways to make a communicator. In a split, the members of an existing communicator exchange their
// colors, their keys, and the seats that they have taken; the members with the same color form a
// communicator. For form(), the members have exchanged their seats by other means (seat.h).
#pragma once

#include "groups/group.h"
#include "xylem/base/status.h"
#include "xylem/runtime/seat.h"

#include <cstdint>
#include <memory>

namespace xylem::runtime {

/// See Communicator::split(). Null if this rank is in none of the new groups.
Result<std::shared_ptr<Group>> split(Group& group, std::int32_t color, std::int32_t key);
/// See Runtime::form(). The members are among those of `parent`.
Result<std::shared_ptr<Group>> form(Group& parent, Seat seat, const Formation& formation);

}  // namespace xylem::runtime
