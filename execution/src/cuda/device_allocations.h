// SPDX-License-Identifier: Apache-2.0
//
// DeviceAllocations: the allocations of this process to which addresses belong, as the CUDA driver
// knows them, and what is kept with each.
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

/// An allocation.
struct DeviceAllocation {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  ///< No other allocation of this process ever has the same.
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  int device = -1;
  int has_ipc = 0;  ///< Other processes can open it, and other devices can reach it.

  /// The one that contains the address. Empty if the driver does not know it.
  static std::optional<DeviceAllocation> of(const Driver& driver, CUdeviceptr address) noexcept;
  bool is_on_device() const noexcept { return type == CU_MEMORYTYPE_DEVICE; }
};

/// Finds allocations without asking the driver for each address again. `Kept` is made when an
/// allocation is first found, and destroyed when the allocation is known to have been freed, or
/// with others when there are too many. One thread at a time may call it.
template <class Kept>
class DeviceAllocations {
 public:
  explicit DeviceAllocations(const Driver& driver) noexcept : driver_(driver) {}
  DeviceAllocations(const DeviceAllocations&) = delete;
  DeviceAllocations& operator=(const DeviceAllocations&) = delete;
  ~DeviceAllocations() = default;

  /// Memory may have been freed and allocated again. The driver is asked again about each
  /// allocation before it is found the next time.
  void renew() noexcept { ++renewals_; }

  /// What is kept with the allocation that contains the address; make(allocation) makes it when the
  /// allocation is first found. Valid until the next call. Null if the driver does not know the
  /// address.
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
    std::uint64_t checked_at = 0;  ///< The value of `renewals_` when the driver was asked.
    Kept kept;
  };
  static constexpr std::size_t kMostKnown = 1024;

  /// Forgets those at the addresses of a new one. They have been freed.
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
