// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/api.h"

#include <cstddef>
#include <cstring>

namespace xylem {

/// copy_bytes() where there are many.
XYLEM_API void copy_many_bytes(void* target, const void* source, std::size_t bytes) noexcept;

/// As memcpy, but as quick wherever source and target begin, and of no bytes pointers may be null.
/// glibc leaves more than about 2 KiB to `rep movsb`, which is 15 times slower on AMD Zen 4 where
/// the target begins a few bytes after the source, pages aside (docs/benchmarks.md, "Copies from
/// anywhere").
inline void copy_bytes(void* target, const void* source, std::size_t bytes) noexcept {
  constexpr std::size_t kFew = 2048;
  if (bytes > kFew) return copy_many_bytes(target, source, bytes);
  if (bytes > 0) std::memcpy(target, source, bytes);
}

/// As memcpy, but the target is written past the cache: it is not read first, and displaces nothing
/// there. Complete when it returns, for other cores, too. For much that is not read again soon.
XYLEM_API void copy_past_cache(void* target, const void* source, std::size_t bytes) noexcept;
/// The same in pieces: complete for other cores only with end_past_cache() after the last.
XYLEM_API void copy_piece_past_cache(void* target, const void* source, std::size_t bytes) noexcept;
XYLEM_API void end_past_cache() noexcept;

/// Where to copy to, and how.
struct CopyTarget {
  void* memory = nullptr;
  bool past_cache = false;
};

/// copy_bytes() or copy_past_cache(), as `target` says.
XYLEM_API void copy_to(CopyTarget target, const void* source, std::size_t bytes) noexcept;
/// Copies to both, piece by piece: the source is read from memory once, and from the nearest cache
/// the second time. No two of the three may overlap. Complete when it returns, for other cores,
/// too.
XYLEM_API void copy_to_both(CopyTarget first,
                            CopyTarget second,
                            const void* source,
                            std::size_t bytes) noexcept;

}  // namespace xylem
