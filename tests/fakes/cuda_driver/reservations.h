// SPDX-License-Identifier: Apache-2.0
//
// Address ranges that were reserved for virtual memory (cuMemAddressReserve). The host may not
// touch them. A range that was given back is kept for the next reservation of its size, so that a
// stale access by the host still faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace xylem::fake_cuda {

/// What addresses, sizes and offsets of mappings are multiples of.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

struct Reservation {
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
};

/// The driver's mutex guards it.
class Reservations {
 public:
  Reservations() = default;
  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;
  ~Reservations();

  /// `alignment` is a power of two. Returns 0 if the system has no addresses.
  std::uintptr_t add(std::size_t bytes, std::size_t alignment);
  void remove(const Reservation& reservation);
  /// The range that contains `address`, or nullptr.
  const Reservation* find(std::uintptr_t address) const;
  /// True if the address was reserved once, and is not any more.
  bool was_freed(std::uintptr_t address) const;
  std::size_t size() const noexcept { return reserved_.size(); }

 private:
  std::map<std::uintptr_t, Reservation> reserved_;  ///< By start.
  std::vector<Reservation> freed_;
};

}  // namespace xylem::fake_cuda
