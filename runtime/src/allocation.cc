// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/allocation.h"

#include "xylem/transport/shared_memory.h"

#include <utility>

namespace xylem {

Allocation::Allocation(Allocation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  Allocation taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

Allocation::~Allocation() {
  if (data_ != nullptr) (void)transport::free_shared(data_);
}

void* Allocation::release() noexcept {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

Result<Allocation> allocate(std::uint64_t bytes) {
  XYLEM_TRY(void* const data, transport::allocate_shared(bytes));
  return Allocation(data, bytes);
}

Status deallocate(void* memory) { return transport::free_shared(memory); }

}  // namespace xylem
