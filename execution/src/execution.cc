// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/execution.h"

#include <new>

namespace xylem::execution {
namespace {

constexpr std::align_val_t kAlignment{64};

std::byte* allocate(std::uint64_t bytes) noexcept {
  return static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
}

void deallocate(std::byte* memory) noexcept { ::operator delete(memory, kAlignment); }

}  // namespace

Result<Ticket> Compute::gate_after(void* /*stream*/) {
  return failure(Code::unsupported, "the device has no streams");
}

Result<Ticket> Compute::gate_before(void* stream) { return gate_after(stream); }

Result<std::unique_ptr<Mesh>> Compute::make_mesh(std::uint32_t /*rank*/) {
  return failure(Code::unsupported, "the device has no streams");
}

std::byte* Compute::allocate_scratch(std::uint64_t bytes) noexcept { return allocate(bytes); }

void Compute::free_scratch(std::byte* memory) noexcept { deallocate(memory); }

void FreeScratch::operator()(std::byte* memory) const noexcept {
  if (compute == nullptr) return deallocate(memory);
  where == Scratch::on_device ? compute->free_device_scratch(memory)
                              : compute->free_scratch(memory);
}

std::byte* ScratchBuffer::reserve(std::uint64_t bytes, Compute* compute) noexcept {
  if (bytes == 0) return memory_.get();
  if (bytes > capacity_ || memory_.get_deleter().compute != compute) {
    memory_.reset();
    std::byte* const memory = compute == nullptr ? allocate(bytes)
                              : where_ == Scratch::on_device
                                  ? compute->allocate_device_scratch(bytes)
                                  : compute->allocate_scratch(bytes);
    memory_ = {memory, FreeScratch{compute, where_}};
    capacity_ = memory == nullptr ? 0 : bytes;
  }
  return memory_.get();
}

}  // namespace xylem::execution
