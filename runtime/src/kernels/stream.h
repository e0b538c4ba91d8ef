// SPDX-License-Identifier: Apache-2.0
//
// Copies of what is not read again soon.
#pragma once

#include <cstddef>

namespace xylem::runtime {

/// As memcpy, but the target is written past the cache: it is not read first, and displaces nothing
/// there. Whoever synchronises with this thread afterwards sees it all.
void copy_past_cache(void* target, const void* source, std::size_t bytes);

}  // namespace xylem::runtime
