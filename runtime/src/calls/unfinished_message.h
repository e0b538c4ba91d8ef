// SPDX-License-Identifier: Apache-2.0
//
// The error message for a time-out of a send or receive: what its message has waited for.
#pragma once

#include "calls/operation.h"

#include <chrono>
#include <string>

namespace xylem::runtime {

/// "rank 0: a receive with tag 7 met no partner within 2 s". `message` is a send or receive that
/// has reached its limit before its end.
std::string describe_unfinished(const Operation& message, std::chrono::nanoseconds limit);

}  // namespace xylem::runtime
