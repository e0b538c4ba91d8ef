// SPDX-License-Identifier: Apache-2.0
//
// The error message for a send or receive that times out. It says what the operation waited for.
#pragma once

#include "calls/operation.h"

#include <chrono>
#include <string>

namespace xylem::runtime {

/// "rank 0: a receive with tag 7 met no partner within 2 s". `message` is a send or receive that
/// has not ended within `limit`.
std::string describe_unfinished(const Operation& message, std::chrono::nanoseconds limit);

}  // namespace xylem::runtime
