// SPDX-License-Identifier: Apache-2.0
//
// Copies between buffers that other cores have just written or read. The C library copies more than
// 2 KiB by `rep movsb` where CPUs claim to be quick at it, and on several that is four to six times
// slower than vectors when another core has the lines of the target (docs/benchmarks.md).
#pragma once

#include "xylem/base/api.h"

#include <cstddef>

namespace xylem {

/// As memcpy.
XYLEM_API void copy_bytes(void* target, const void* source, std::size_t bytes) noexcept;

/// As memcpy, but the target is written past the cache: it is not read first, and displaces nothing
/// there. Complete when it returns, for other cores, too.
XYLEM_API void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept;

}  // namespace xylem
