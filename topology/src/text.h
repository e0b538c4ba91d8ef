// SPDX-License-Identifier: Apache-2.0
//
// Text from strangers: names and numbers out of files, made safe to print and to write as JSON.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace xylem::topology {

/// Names longer than this are cut.
inline constexpr std::size_t kMaxText = 1024;

/// `text` without surrounding blanks, as valid UTF-8 without control characters ('?' in their
/// place): a device's name must not move the cursor of whoever prints it. Cleaning twice changes
/// nothing more.
std::string clean_text(std::string_view text);

/// The start of `text`, cleaned, for showing in an error.
std::string excerpt(std::string_view text);

/// All of `text` as a number, or nothing.
template <std::unsigned_integral T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// All of `text` as a finite number of at least zero, or nothing.
std::optional<double> parse_real(std::string_view text);

}  // namespace xylem::topology
