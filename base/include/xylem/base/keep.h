// SPDX-License-Identifier: Apache-2.0
//
// Keeps objects that cannot be destroyed safely until the process ends: memory to which a device or
// a transport may still write, or an object in whose functions a thread may still be.
#pragma once

#include <memory>

namespace xylem {

/// Keeps the object until the process ends, and never destroys it. It stays reachable, so leak
/// checkers do not report it. Any thread may call this, also in a forked child: it takes no lock of
/// its own.
void keep_until_exit(std::shared_ptr<const void> object);

}  // namespace xylem
