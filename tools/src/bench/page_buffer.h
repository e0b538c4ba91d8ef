// SPDX-License-Identifier: Apache-2.0
//
// Memory for the buffers of a benchmark.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/allocation.h"

#include <cstddef>
#include <memory>

namespace xylem::tools {

/// Memory that begins at a page boundary. All its pages have been written once, so they exist.
class PageBuffer {
 public:
  static Result<PageBuffer> allocate(std::size_t bytes);
  /// Allocates memory with xylem::allocate(). Memory of a device is not written, and begins at a
  /// multiple of 256 bytes.
  static Result<PageBuffer> allocate_by_library(std::size_t bytes, const Memory& where);
  std::byte* data() const noexcept {
    return memory_ ? memory_.get() : static_cast<std::byte*>(by_library_.data());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  Allocation by_library_;
};

}  // namespace xylem::tools
