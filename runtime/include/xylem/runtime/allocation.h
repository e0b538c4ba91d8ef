// SPDX-License-Identifier: Apache-2.0
//
// Memory for buffers that the other ranks of this host can read in place.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <cstdint>

namespace xylem {

class Allocation;
/// Allocates zeroed memory and reserves all of it at once. If the machine has less memory, the call
/// fails with `exhausted`, so no later access ends in a signal. (The kernel enforces limits of
/// control groups by itself, and may end the process.) Each allocation keeps a descriptor open.
/// Fails with `invalid_argument` for 0 bytes, and with `unsupported` where the system denies
/// anonymous shared memory. It needs no Runtime, and any thread may call it.
XYLEM_API Result<Allocation> allocate(std::uint64_t bytes);
/// Frees memory that Allocation::release() returned. Fails with `invalid_argument` for any other
/// memory. Any thread may call it.
XYLEM_API Status deallocate(void* memory);

/// Memory for buffers. Buffers of operations may lie anywhere. A large message from an Allocation
/// to a rank of this host is not copied into shared memory: the receiver reads the Allocation
/// itself, and the send ends when the receiver has read it. Small messages, and messages from other
/// memory, are copied into shared memory first.
///
/// The destructor frees the memory; no operation may use it any more by then. Children made by
/// fork() share the memory for as long as they live.
class XYLEM_API Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  /// Page-aligned; null for an empty Allocation.
  void* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns data() and leaves the memory to the caller, who passes it to deallocate(). The
  /// Allocation is empty afterwards.
  void* release() noexcept;

 private:
  friend Result<Allocation> allocate(std::uint64_t bytes);
  Allocation(void* data, std::uint64_t bytes) noexcept : data_(data), bytes_(bytes) {}

  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace xylem
