// SPDX-License-Identifier: Apache-2.0
//
// Allocates the buffers of a benchmark.
#include "bench/page_buffer.h"

#include "xylem/base/quantity.h"

#include <algorithm>
#include <new>

namespace xylem::tools {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t in_whole_pages(std::size_t bytes) { return (bytes / kPage + 1) * kPage; }

}  // namespace

Result<PageBuffer> PageBuffer::allocate_by_library(std::size_t bytes, const Memory& where) {
  PageBuffer buffer;
  XYLEM_TRY(buffer.by_library_, xylem::allocate(in_whole_pages(bytes), where));
  return buffer;
}

Result<PageBuffer> PageBuffer::allocate(std::size_t bytes) {
  const std::size_t whole_pages = in_whole_pages(bytes);
  PageBuffer buffer;
  buffer.memory_.reset(
      static_cast<std::byte*>(::operator new (whole_pages, std::align_val_t{kPage}, std::nothrow)));
  if (!buffer.memory_) {
    return failure(Code::exhausted, "no memory for a buffer of " + format_bytes({whole_pages}) +
                                        ": choose a smaller largest size (-e)");
  }
  // All pages that were never written share one page of zeros, which would make reading too fast.
  std::fill_n(buffer.memory_.get(), whole_pages, std::byte{1});
  return buffer;
}

void PageBuffer::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{kPage});
}

}  // namespace xylem::tools
