// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/api.h"

#include <cstddef>

namespace xylem {

/// As memcpy, but the target is written past the cache: it is not read first, and displaces nothing
/// there. Complete when it returns, for other cores, too. For much that is not read again soon.
XYLEM_API void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept;

}  // namespace xylem
