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
    // The deleter knows how it was made; no factory makes aligned arrays that may fail.
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    memory_.reset(new (kAlignment, std::nothrow) std::byte[bytes]);
    capacity_ = memory_ ? bytes : 0;
  }
  return memory_.get();
}

}  // namespace xylem::execution
