// SPDX-License-Identifier: Apache-2.0
//
// Memory for buffers that the other ranks of this host read where they are.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <cstdint>

namespace xylem {

class Allocation;
/// Zeroed memory, all of it there: where the machine has less, it is `exhausted`, and no signal
/// later (a limit of a control group is the kernel's to enforce). Every allocation keeps a
/// descriptor open. `invalid_argument` for 0 bytes, `unsupported` where the system denies memory
/// without a name. Needs no Runtime; any thread.
XYLEM_API Result<Allocation> allocate(std::uint64_t bytes);
/// Gives back what Allocation::release() left; `invalid_argument` for any other memory. Any thread.
XYLEM_API Status deallocate(void* memory);

/// Buffers of operations may lie anywhere. Large messages to ranks of this host that are sent from
/// an Allocation are read where they are, and end when they have been read; from other memory, and
/// where they are small, they are copied into shared memory first.
///
/// Gives its memory back when it ends: no operation may use it any more. The memory is shared with
/// children that fork() makes, for as long as they live.
class XYLEM_API Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  /// Page-aligned; null where it is empty.
  void* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Leaves the memory to the caller, who passes data() to deallocate(). It is empty then.
  void* release() noexcept;

 private:
  friend Result<Allocation> allocate(std::uint64_t bytes);
  Allocation(void* data, std::uint64_t bytes) noexcept : data_(data), bytes_(bytes) {}

  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace xylem
