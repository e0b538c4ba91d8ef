// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/api.h"

#include <cstddef>

namespace xylem {

/// As memcpy, but the target is written past the cache: it is not read first, and displaces nothing
/// there. Complete when it returns, for other cores, too. For much that is not read again soon.
XYLEM_API void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept;
/// The same in pieces: complete for other cores only with end_past_cache() after the last.
XYLEM_API void copy_piece_past_cache(void* target, const void* source, std::size_t bytes) noexcept;
XYLEM_API void end_past_cache() noexcept;

}  // namespace xylem
