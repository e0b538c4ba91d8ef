// SPDX-License-Identifier: Apache-2.0
//
// Xylem's own threads. They handle no signals of the program, and if there is no room for one, that
// is an error like any other.
#pragma once

#include "xylem/base/status.h"

#include <functional>
#include <string_view>
#include <thread>

namespace xylem::runtime {

/// Starts a thread. `purpose` completes "no thread can be started to …". Fails with `exhausted` if
/// the system has no room for a thread.
Result<std::thread> start_service_thread(std::string_view purpose, std::function<void()> body);

}  // namespace xylem::runtime
