// SPDX-License-Identifier: Apache-2.0
//
// Memory to measure with.
#pragma once

#include "xylem/base/status.h"
#include "xylem/runtime/allocation.h"

#include <cstddef>
#include <memory>

namespace xylem::tools {

/// Memory that begins at a page boundary and has been touched.
class PageBuffer {
 public:
  static Result<PageBuffer> allocate(std::size_t bytes);
  /// Allocates memory with xylem::allocate().
  static Result<PageBuffer> allocate_shared(std::size_t bytes);
  std::byte* data() const noexcept {
    return memory_ ? memory_.get() : static_cast<std::byte*>(shared_.data());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  Allocation shared_;
};

}  // namespace xylem::tools
