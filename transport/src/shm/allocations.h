// SPDX-License-Identifier: Apache-2.0
//
// The memory that this process has allocated with allocate_shared(). Each shm transport keeps a
// copy of the list, refreshes it when version() changes, and passes the descriptors to its peers.
#pragma once

#include "xylem/base/mutex.h"
#include "xylem/base/status.h"
#include "xylem/base/unique_fd.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace xylem::transport::shm {

struct Allocation {
  std::uint32_t id = 0;  ///< A number that is not reused within this process.
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::shared_ptr<const UniqueFd> fd;

  bool holds(const void* data, std::uint64_t size) const noexcept {
    const auto* at = static_cast<const std::byte*>(data);
    return at >= memory && at < memory + bytes && std::cmp_less_equal(size, memory + bytes - at);
  }
};

/// All allocations of this process. Thread-safe.
class Allocations {
 public:
  static Allocations& of_process() noexcept;

  Result<void*> add(std::uint64_t bytes);
  Status remove(void* memory);
  /// Changes whenever the list changes.
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  std::vector<Allocation> list() const;

 private:
  mutable Mutex mutex_;
  std::atomic<std::uint64_t> version_{0};
  std::uint32_t next_id_ XYLEM_LOCKING(guarded_by(mutex_)) = 0;
  std::vector<Allocation> list_ XYLEM_LOCKING(guarded_by(mutex_));
};

}  // namespace xylem::transport::shm
