// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/execution.h"

#include <new>

namespace xylem::execution {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void ScratchBuffer::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete[](memory, kAlignment);
}

std::byte* ScratchBuffer::reserve(std::uint64_t bytes) noexcept {
  if (bytes > capacity_) {
    memory_.reset();
    // The deleter frees the array in the way in which it is allocated here. There is no factory
    // function that makes an aligned array and reports a failure without an exception.
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    memory_.reset(new (kAlignment, std::nothrow) std::byte[bytes]);
    capacity_ = memory_ ? bytes : 0;
  }
  return memory_.get();
}

}  // namespace xylem::execution
