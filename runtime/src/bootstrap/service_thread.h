// SPDX-License-Identifier: Apache-2.0
//
// Threads of ours: no signal of the program is handled on them, and that there is no room for one
// is an error like any other.
#pragma once

#include "xylem/base/status.h"

#include <functional>
#include <string_view>
#include <thread>

namespace xylem::runtime {

/// Starts a thread; `purpose` completes "no thread can be started to …". `exhausted` if the system
/// has no room for one.
Result<std::thread> start_service_thread(std::string_view purpose, std::function<void()> body);

}  // namespace xylem::runtime
