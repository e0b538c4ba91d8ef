// SPDX-License-Identifier: Apache-2.0
//
// An allocator for the buffers of a test, which takes memory from the heap or from
// xylem::allocate().
#pragma once

#include "xylem/runtime/allocation.h"

#include <cstddef>
#include <memory>
#include <new>

namespace xylem::test {

/// Where a BufferAllocator takes memory from. Each thread has its own setting.
struct BufferSource {
  enum Kind { heap, library };
  static inline thread_local Kind of_thread = heap;
};

/// An allocator for standard containers. A container keeps the source that was set for its thread
/// when the container was constructed.
template <typename T>
struct BufferAllocator {
  using value_type = T;

  BufferAllocator() = default;
  template <typename Other>
  BufferAllocator(const BufferAllocator<Other>& other) noexcept : source(other.source) {}

  T* allocate(std::size_t count) {
    if (source == BufferSource::heap) return std::allocator<T>().allocate(count);
    auto allocation = xylem::allocate(count * sizeof(T));
    if (!allocation) throw std::bad_alloc();
    return static_cast<T*>(allocation->release());
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if (source == BufferSource::heap) return std::allocator<T>().deallocate(memory, count);
    (void)xylem::deallocate(memory);
  }
  friend bool operator==(const BufferAllocator& a, const BufferAllocator& b) noexcept {
    return a.source == b.source;
  }

  BufferSource::Kind source = BufferSource::of_thread;
};

}  // namespace xylem::test
