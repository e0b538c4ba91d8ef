// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that its peers on the same host can read where it is. Any shm transport of
// the process sends what may stay there (Stay) without a copy.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>

namespace xylem::transport {

/// Page-aligned, zero, and there in full: where the machine has less it is `exhausted`, and no
/// signal later (a limit of a control group is the kernel's to enforce). `invalid_argument` for 0
/// bytes, `unsupported` where memory without a name is denied. The memory is shared with children
/// that fork() makes. Any thread.
Result<void*> allocate_shared(std::uint64_t bytes);
/// Gives back what allocate_shared() returned, and no operation uses. `invalid_argument` for other
/// memory. Any thread.
Status free_shared(void* memory);

}  // namespace xylem::transport
