// SPDX-License-Identifier: Apache-2.0
//
// A set of logical CPUs by operating-system number, stored as ranges: a host has hundreds of CPUs
// but few ranges. Its text is the kernel's list form, "0-15,128-143".
#pragma once

#include "xylem/base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xylem::topology {

/// The largest CPU number that a set may hold; a larger number means a damaged file.
inline constexpr std::uint32_t kMaxCpu = 65535;

/// A set of CPUs, as a value. Ranges are sorted, disjoint and not adjacent, so equal sets compare
/// equal.
class CpuSet {
 public:
  /// The first and the last CPU of a range; both belong to it.
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  /// Reads "0-15,128-143". The empty text is the empty set.
  static Result<CpuSet> parse(std::string_view text);
  /// Reads a bitmap, "0x0000ffff,,0x1" or "ffff,00000001": 32-bit words, most significant first; an
  /// empty word is zero. Returns nothing if the text is malformed, infinite ("0xf...f") or beyond
  /// kMaxCpu.
  static std::optional<CpuSet> parse_bitmap(std::string_view text);

  /// Adds the CPUs from `first` to `last`. Requires first <= last <= kMaxCpu.
  void add(std::uint32_t first, std::uint32_t last);

  bool empty() const noexcept { return ranges_.empty(); }
  /// How many CPUs are in the set.
  std::uint32_t count() const noexcept;
  bool contains(std::uint32_t cpu) const noexcept;
  bool intersects(const CpuSet& other) const noexcept;
  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  std::string to_string() const;
  /// "00000001,0000ffff", as parse_bitmap() reads it; "0" for the empty set.
  std::string to_bitmap() const;

  friend bool operator==(const CpuSet&, const CpuSet&) = default;

 private:
  std::vector<Range> ranges_;
};

}  // namespace xylem::topology
