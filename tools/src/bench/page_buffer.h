// SPDX-License-Identifier: Apache-2.0
//
// Memory to measure with.
#pragma once

#include "xylem/base/status.h"

#include <cstddef>
#include <memory>

namespace xylem::tools {

/// Memory on page boundaries, touched.
class PageBuffer {
 public:
  static Result<PageBuffer> allocate(std::size_t bytes);
  std::byte* data() const noexcept { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace xylem::tools
