// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that its peers on the same host can read in place. A shm transport of this
// process sends messages from such memory without copying them, where the caller allows it
// (InPlace).
#pragma once

#include "xylem/base/status.h"

#include <cstdint>

namespace xylem::transport {

/// Allocates page-aligned, zeroed memory. All pages are allocated at once: if the machine has too
/// little memory left, the call fails with `exhausted`, and no later access ends in SIGBUS. (Memory
/// limits of a control group are still enforced by the kernel.) Fails with `invalid_argument` for 0
/// bytes, and with `unsupported` where the system denies anonymous shared memory. Children made by
/// fork() share the memory. Thread-safe.
Result<void*> allocate_shared(std::uint64_t bytes);
/// Frees memory that allocate_shared() returned. No operation may be using it. Fails with
/// `invalid_argument` for any other memory. Thread-safe.
Status free_shared(void* memory);

}  // namespace xylem::transport
