// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "xylem/base/api.h"

#include <cstddef>
#include <cstring>

namespace xylem {

/// Implements copy_bytes() for more than 2048 bytes.
XYLEM_API void copy_many_bytes(void* target, const void* source, std::size_t bytes) noexcept;

/// Like memcpy, but fast for any alignment of source and target; pointers may be null if `bytes` is
/// 0. For more than about 2 KiB, glibc's memcpy uses `rep movsb`. On AMD Zen 4 this instruction is
/// 15 times slower if, modulo the page size, the target begins a few bytes after the source
/// ("Copies from anywhere" in bench/results/2026-11-29-history.md).
inline void copy_bytes(void* target, const void* source, std::size_t bytes) noexcept {
  constexpr std::size_t kFew = 2048;
  if (bytes > kFew) return copy_many_bytes(target, source, bytes);
  if (bytes > 0) std::memcpy(target, source, bytes);
}

/// Like memcpy, but with non-temporal stores: the CPU does not read the target's cache lines first,
/// and evicts nothing from the cache. The bytes are visible to other cores when the call returns.
/// Use it for large amounts of data that are not read again soon.
XYLEM_API void copy_non_temporal(void* target, const void* source, std::size_t bytes) noexcept;
/// Like copy_non_temporal(), for one piece of a copy. The caller must call fence_non_temporal()
/// after the last piece; only then are the bytes visible to other cores.
XYLEM_API void copy_piece_non_temporal(void* target,
                                       const void* source,
                                       std::size_t bytes) noexcept;
XYLEM_API void fence_non_temporal() noexcept;

/// The target of a copy, and whether to write it with non-temporal stores.
struct CopyTarget {
  void* memory = nullptr;
  bool non_temporal = false;
};

/// Calls copy_non_temporal() if target.non_temporal is set, otherwise copy_bytes().
XYLEM_API void copy_to(CopyTarget target, const void* source, std::size_t bytes) noexcept;
/// Copies the source to both targets, piece by piece, so that each piece is read from memory once
/// and from the nearest cache the second time. Source and targets must not overlap. The bytes are
/// visible to other cores when the call returns.
XYLEM_API void copy_to_both(CopyTarget first,
                            CopyTarget second,
                            const void* source,
                            std::size_t bytes) noexcept;

}  // namespace xylem
