// SPDX-License-Identifier: Apache-2.0
//
// Quantities with units, and their text: sizes ("64K", "1.5 MiB"), durations ("200ms", "30min") and
// bandwidths ("12.5 GB/s"). Command-line options, environment variables and printed tables share
// one parser and one printer.
#pragma once

#include "xylem/base/api.h"
#include "xylem/base/status.h"

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace xylem {

/// A number of bytes.
struct Bytes {
  std::uint64_t value = 0;
  friend auto operator<=>(const Bytes&, const Bytes&) = default;
};

/// A bandwidth in units of 10^9 bytes per second.
struct GBps {
  double value = 0;
  friend auto operator<=>(const GBps&, const GBps&) = default;
};

/// Reads "4096", "64K", "64KiB", "1.5M", "2g": powers of 1024, with the suffixes k, m, g, t in any
/// case and an optional "b" or "ib".
XYLEM_API Result<Bytes> parse_bytes(std::string_view text);
/// Reads "200ms", "30 s", "30min", "1h", "50us". A number without a unit is in seconds.
XYLEM_API Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// A short form in powers of 1024: "64 KiB", "1.5 MiB", "8 B".
XYLEM_API std::string format_bytes(Bytes bytes);
/// A short form, such as "1.25 us", "30 s" or "30 min".
XYLEM_API std::string format_duration(std::chrono::nanoseconds duration);
/// A short form, such as "12.5 GB/s".
XYLEM_API std::string format_bandwidth(GBps bandwidth);

}  // namespace xylem
