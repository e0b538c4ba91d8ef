// SPDX-License-Identifier: Apache-2.0
#include "xylem/runtime/allocation.h"

#include "live_jobs.h"
#include "xylem/execution/cuda.h"
#include "xylem/transport/shared_memory.h"

#include <fmt/format.h>

#include <utility>

namespace xylem {

Allocation::Allocation(Allocation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      memory_(other.memory_) {}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  Allocation taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  std::swap(memory_, taken.memory_);
  return *this;
}

Allocation::~Allocation() {
  if (data_ != nullptr) (void)deallocate(data_);
}

void* Allocation::release() noexcept {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

Result<Allocation> allocate(std::uint64_t bytes) { return allocate(bytes, Memory{}); }

Result<Allocation> allocate(std::uint64_t bytes, const Memory& where) {
  XYLEM_TRY(runtime::LiveJobs::of_process().check());
  void* data = nullptr;
  if (where.kind == MemoryKind::host) {
    XYLEM_TRY(data, transport::allocate_shared(bytes));
  } else if (where.kind == MemoryKind::cuda) {
    XYLEM_TRY(data, execution::allocate_on_cuda(bytes, where.device));
  } else {
    return failure(Code::unsupported,
                   fmt::format("{} memory cannot be allocated; ask for host or cuda memory",
                               name(where.kind)));
  }
  return Allocation(data, bytes, where);
}

Status deallocate(void* memory) {
  XYLEM_TRY(runtime::LiveJobs::of_process().check());
  if (auto freed = execution::free_on_cuda(memory)) return *std::move(freed);
  return transport::free_shared(memory);
}

}  // namespace xylem
