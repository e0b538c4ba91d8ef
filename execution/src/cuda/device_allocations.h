// SPDX-License-Identifier: Apache-2.0
//
// DeviceAllocations: a cache of the allocations that the CUDA driver finds for addresses of this
// process, with a value for each allocation.
#pragma once

#include "cuda/driver.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace xylem::execution::cuda {

/// Whether `bytes` bytes from `at` on lie within the `size` bytes from `start` on.
inline bool contains(CUdeviceptr start,
                     std::uint64_t size,
                     CUdeviceptr at,
                     std::uint64_t bytes) noexcept {
  return at >= start && at - start <= size && bytes <= size - (at - start);
}

/// An allocation of this process, as the CUDA driver describes it.
struct DeviceAllocation {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  ///< No other allocation of this process ever has this number.
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  int device = -1;
  int has_ipc = 0;  ///< Not 0 if other processes can open it, and other devices can access it.

  /// The allocation that contains the address. Empty if the driver does not know the address.
  static std::optional<DeviceAllocation> of(const Driver& driver, CUdeviceptr address) noexcept;
  bool is_on_device() const noexcept { return type == CU_MEMORYTYPE_DEVICE; }
};

/// Finds the allocation of an address without a query of the driver for each address. A `Kept` is
/// made when an allocation is first found. It is destroyed when a later query shows that the
/// allocation has been freed. If there are too many allocations, all are destroyed. Only one thread
/// at a time may call it.
template <class Kept>
class DeviceAllocations {
 public:
  explicit DeviceAllocations(const Driver& driver) noexcept : driver_(driver) {}
  DeviceAllocations(const DeviceAllocations&) = delete;
  DeviceAllocations& operator=(const DeviceAllocations&) = delete;
  ~DeviceAllocations() = default;

  /// Call this when memory may have been freed and allocated again. find() then queries the driver
  /// about each allocation once more.
  void renew() noexcept { ++renewals_; }

  /// Returns the `Kept` of the allocation that contains the address. make(allocation) makes it when
  /// the allocation is first found. The result is valid until the next call. Null if the driver
  /// does not know the address.
  template <class Make>
  const Kept* find(CUdeviceptr address, Make&& make) noexcept {
    const auto is_here = [&](const auto& known) {
      return known != known_.end() && known->second.checked_at == renewals_ &&
             contains(known->first, known->second.bytes, address, 1);
    };
    if (is_here(last_)) return &last_->second.kept;
    const auto after = known_.upper_bound(address);
    if (after != known_.begin() && is_here(std::prev(after))) {
      last_ = std::prev(after);
      return &last_->second.kept;
    }
    const auto allocation = DeviceAllocation::of(driver_, address);
    if (!allocation) return nullptr;
    last_ = known_.find(allocation->start);
    const bool is_known = last_ != known_.end() && last_->second.bytes == allocation->bytes &&
                          last_->second.number == allocation->number;
    if (!is_known) {
      forget_freed(*allocation);
      last_ = known_
                  .emplace(allocation->start,
                           Known{allocation->bytes, allocation->number, 0, make(*allocation)})
                  .first;
    }
    last_->second.checked_at = renewals_;
    return &last_->second.kept;
  }

 private:
  struct Known {
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;
    std::uint64_t checked_at = 0;  ///< The value of `renewals_` at the last query of the driver.
    Kept kept;
  };
  static constexpr std::size_t kMostKnown = 1024;

  /// Removes allocations that overlap the new allocation `made`: they have been freed. If there are
  /// kMostKnown allocations, removes all.
  void forget_freed(const DeviceAllocation& made) noexcept {
    if (known_.size() >= kMostKnown) known_.clear();
    auto first = known_.lower_bound(made.start);
    if (first != known_.begin()) {
      const auto before = std::prev(first);
      if (made.start - before->first < before->second.bytes) first = before;
    }
    known_.erase(first, known_.lower_bound(made.start + made.bytes));
  }

  const Driver& driver_;
  std::uint64_t renewals_ = 1;
  std::map<CUdeviceptr, Known> known_;  ///< By their first addresses.
  typename std::map<CUdeviceptr, Known>::iterator last_ = known_.end();
};

}  // namespace xylem::execution::cuda
