// SPDX-License-Identifier: Apache-2.0
//
// Keeps objects alive until the process ends, because destroying them would be unsafe: a device or
// a transport may still write to the memory, or a thread may still execute a function of the
// object.
#pragma once

#include <memory>

namespace xylem {

/// Keeps `object` alive until the process ends; its destructor never runs. The object stays
/// reachable, so leak checkers do not report it. Any thread may call this function, also in a
/// forked child: it acquires no lock except those of the memory allocator.
void keep_until_exit(std::shared_ptr<const void> object);

}  // namespace xylem
