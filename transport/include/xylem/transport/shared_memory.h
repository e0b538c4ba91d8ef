// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that its peers on the same host can read where it is. Any shm transport of
// the process sends from it without a copy.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>

namespace xylem::transport {

/// Page-aligned, zero, and there in full: a shortage is `exhausted` here, and no signal later.
/// `invalid_argument` for 0 bytes, `unsupported` where memory without a name is denied. The
/// memory is shared with children that fork() makes. Any thread.
Result<void*> allocate_shared(std::uint64_t bytes);
/// Gives back what allocate_shared() returned, and no operation uses. `invalid_argument` for other
/// memory. Any thread.
Status free_shared(void* memory);

}  // namespace xylem::transport
