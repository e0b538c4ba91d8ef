// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that its peers on the same host can read in place. If the caller of send()
// permits it (InPlace), the shm transport does not copy messages in such memory.
#pragma once

#include "xylem/base/status.h"

#include <cstdint>

namespace xylem::transport {

/// Allocates page-aligned, zeroed memory, with all its pages. If the machine or the process's
/// control group has too little memory left, fails with `exhausted`, so that no later access ends
/// in SIGBUS. (If other processes allocate memory at the same time, the kernel may still enforce
/// the limit of the control group.) Fails with `invalid_argument` for 0 bytes, and with
/// `unsupported` if the system denies anonymous shared memory. Children made by fork() share the
/// memory. Thread-safe.
Result<void*> allocate_shared(std::uint64_t bytes);
/// Frees memory that allocate_shared() returned. No operation may be using the memory. Fails with
/// `invalid_argument` for any other memory. Thread-safe.
Status free_shared(void* memory);

}  // namespace xylem::transport
