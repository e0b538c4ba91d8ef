// SPDX-License-Identifier: Apache-2.0
//
// Address ranges that are reserved for virtual memory (cuMemAddressReserve). The host cannot access
// them. When a range is freed, it stays reserved, so that a later access by the host still faults.
// The next reservation of the same size reuses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace xylem::fake_cuda {

/// Addresses, sizes and offsets of mappings are multiples of kGranularity.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

struct Reservation {
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
};

/// The reserved ranges. The driver's mutex guards them.
class Reservations {
 public:
  Reservations() = default;
  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;
  ~Reservations();

  /// `alignment` is a power of two. Returns 0 if no address range is available.
  std::uintptr_t add(std::size_t bytes, std::size_t alignment);
  void remove(const Reservation& reservation);
  /// The range that contains `address`, or nullptr.
  const Reservation* find(std::uintptr_t address) const;
  /// True if the address was in a reservation, and is in none at present.
  bool was_freed(std::uintptr_t address) const;
  std::size_t size() const noexcept { return reserved_.size(); }

 private:
  std::map<std::uintptr_t, Reservation> reserved_;  ///< By start address.
  std::vector<Reservation> freed_;
};

}  // namespace xylem::fake_cuda
