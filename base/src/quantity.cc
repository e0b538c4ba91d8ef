// SPDX-License-Identifier: Apache-2.0
//
// Text of quantities. The integral part of a number is read exactly, and the fraction is rounded to
// the nearest byte or nanosecond. A quantity is printed in the largest unit that is not larger than
// its value. Exact values have no trailing zeros and rounded ones have two decimals, so "1 KiB"
// never stands for 1025 bytes.
#include "xylem/base/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

namespace xylem {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKibi = 1024;
constexpr std::array kByteUnits = {
    Unit{"B", 1},
    Unit{"KiB", kKibi},
    Unit{"MiB", kKibi* kKibi},
    Unit{"GiB", kKibi* kKibi* kKibi},
    Unit{"TiB", kKibi* kKibi* kKibi* kKibi},
};

constexpr std::array kTimeUnits = {
    Unit{"ns", 1},
    Unit{"us", 1'000},
    Unit{"ms", 1'000'000},
    Unit{"s", 1'000'000'000},
    Unit{"min", 60'000'000'000},
    Unit{"h", 3'600'000'000'000},
};

constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// The parts of "12.5 MiB": whole "12", fraction "5", unit "mib".
struct Parts {
  std::string_view whole;
  std::string_view fraction;
  std::string unit;
};

/// Splits text such as "12.5 MiB". The text must begin with a digit, and a point must be followed
/// by a digit; otherwise the result is nullopt. The unit is not checked.
std::optional<Parts> take_apart(std::string_view text) {
  text = trimmed(text);
  Parts parts;
  const auto take_digits = [&text] {
    std::size_t length = 0;
    while (length < text.size() && is_digit(text[length])) ++length;
    const auto digits = text.substr(0, length);
    text.remove_prefix(length);
    return digits;
  };
  parts.whole = take_digits();
  if (parts.whole.empty()) return std::nullopt;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    parts.fraction = take_digits();
    if (parts.fraction.empty()) return std::nullopt;
  }
  for (const char c : trimmed(text)) parts.unit += to_lower(c);
  return parts;
}

/// The number whole.fraction of `parts`, times `factor`, rounded to the nearest integer; nullopt if
/// the result exceeds `limit`.
std::optional<std::uint64_t> scaled(const Parts& parts, std::uint64_t factor, std::uint64_t limit) {
  std::uint64_t whole = 0;
  const char* const end = parts.whole.data() + parts.whole.size();
  if (std::from_chars(parts.whole.data(), end, whole).ec != std::errc()) return std::nullopt;
  if (whole > limit / factor) return std::nullopt;
  double fraction = 0;
  double digit_value = 0.1;
  for (const char c : parts.fraction) {
    fraction += digit_value * (c - '0');
    digit_value /= 10;
  }
  const auto rest =
      static_cast<std::uint64_t>(std::llround(fraction * static_cast<double>(factor)));
  const std::uint64_t value = whole * factor;
  if (rest > limit - value) return std::nullopt;
  return value + rest;
}

/// The factor of a lower-case size suffix: "", "b", "k", "kb", "kib", …; 0 for any other text.
std::uint64_t byte_factor(std::string_view suffix) {
  constexpr std::string_view kPrefixes = "kmgt";
  if (suffix.empty() || suffix == "b") return 1;
  const auto power = kPrefixes.find(suffix.front());
  const auto rest = suffix.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return 0;
  return kByteUnits[power + 1].factor;
}

std::uint64_t time_factor(std::string_view suffix) {
  if (suffix.empty()) return kTimeUnits[3].factor;
  for (const Unit& unit : kTimeUnits) {
    if (unit.name == suffix) return unit.factor;
  }
  return 0;
}

Status malformed(std::string_view what, std::string_view text, std::string_view rule) {
  return failure(Code::invalid_argument, fmt::format("{} \"{}\" {}", what, text, rule));
}

/// `value` in the largest unit that is not larger than the value.
std::string format_in(std::uint64_t value, std::span<const Unit> units) {
  std::size_t index = 0;
  while (index + 1 < units.size() && value >= units[index + 1].factor) ++index;
  const Unit& unit = units[index];
  const std::uint64_t rest = value % unit.factor;
  if (rest == 0) return fmt::format("{} {}", value / unit.factor, unit.name);

  const double number = static_cast<double>(value) / static_cast<double>(unit.factor);
  const bool is_exact_in_thousandths = rest * 1000 % unit.factor == 0;
  if (is_exact_in_thousandths && number < 1e6) return fmt::format("{} {}", number, unit.name);
  const std::string rounded = fmt::format("{:.2f}", number);
  // 1048575 bytes round to 1024.00 KiB. Such a value is printed as 1.00 of the next unit.
  if (index + 1 < units.size()) {
    const Unit& next = units[index + 1];
    if (rounded == fmt::format("{:.2f}", static_cast<double>(next.factor) /
                                             static_cast<double>(unit.factor))) {
      return fmt::format("1.00 {}", next.name);
    }
  }
  return fmt::format("{} {}", rounded, unit.name);
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  constexpr std::string_view kRule =
      "is not a size: write a number and K, M, G or T (powers of 1024), as in 4096, 64K or 1.5MiB";
  const auto parts = take_apart(text);
  if (!parts) return malformed("size", text, kRule);
  const std::uint64_t factor = byte_factor(parts->unit);
  if (factor == 0) return malformed("size", text, kRule);
  if (factor == 1 && !parts->fraction.empty()) {
    return malformed("size", text, "is not a whole number of bytes: add a unit, as in 1.5K");
  }
  const auto value = scaled(*parts, factor, std::numeric_limits<std::uint64_t>::max());
  if (!value) return malformed("size", text, "exceeds 2^64 - 1 bytes: choose a smaller one");
  return Bytes{*value};
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kRule =
      "is not a duration: write a number and ns, us, ms, s, min or h, as in 200ms, 30s or 1.5min";
  constexpr auto kLongest = std::chrono::nanoseconds::max().count();
  const auto parts = take_apart(text);
  if (!parts) return malformed("duration", text, kRule);
  const std::uint64_t factor = time_factor(parts->unit);
  if (factor == 0) return malformed("duration", text, kRule);
  const auto value = scaled(*parts, factor, static_cast<std::uint64_t>(kLongest));
  if (!value) return malformed("duration", text, "exceeds 292 years: choose a shorter one");
  return std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(*value));
}

std::string format_bytes(Bytes bytes) { return format_in(bytes.value, kByteUnits); }

std::string format_duration(std::chrono::nanoseconds duration) {
  // Negated as an unsigned number, since the magnitude of the most negative duration exceeds the
  // signed type.
  const auto count = static_cast<std::uint64_t>(duration.count());
  if (duration.count() < 0) return "-" + format_in(0 - count, kTimeUnits);
  return format_in(count, kTimeUnits);
}

std::string format_bandwidth(GBps bandwidth) {
  // Below 1000, four significant digits are printed. From 1000 on, the integral part is printed in
  // full, since {:.4g} would use an exponent from 10,000 on.
  if (std::abs(bandwidth.value) < 1000) return fmt::format("{:.4g} GB/s", bandwidth.value);
  return fmt::format("{:.0f} GB/s", bandwidth.value);
}

}  // namespace xylem
