// SPDX-License-Identifier: Apache-2.0
//
// Handles untrusted text: names and numbers from files, made safe for printing and for JSON.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::topology {

/// Longer names are cut.
inline constexpr std::size_t kMaxText = 1024;

/// `text` without surrounding blanks, as valid UTF-8, with '?' in place of invalid bytes and
/// control characters: a device name must not control the terminal on which it is printed. Cleaning
/// a text twice changes nothing.
std::string clean_text(std::string_view text);

/// The beginning of `text`, cleaned, to show in an error.
std::string excerpt(std::string_view text);

/// Parses all of `text` as a number; returns nothing if `text` is no number of this type.
template <std::unsigned_integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Parses all of `text` as a finite number that is not negative; returns nothing if `text` is no
/// such number.
std::optional<double> parse_real(std::string_view text);

}  // namespace xylem::topology
