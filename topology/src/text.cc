// SPDX-License-Identifier: Apache-2.0
//
// Cleans untrusted text.
#include "text.h"

#include <cmath>

namespace xylem::topology {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// Length of the well-formed, printable character at `at`, or 0. The limits of the second byte
/// exclude overlong forms, surrogates, code points beyond U+10FFFF (Unicode, table 3-7) and, after
/// C2, the C1 control characters.
std::size_t printable_length(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (at + length > text.size()) return 0;
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (lead == 0xc2 || lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  if (byte_at(text, at + 1) < low || byte_at(text, at + 1) > high) return 0;
  for (std::size_t i = at + 2; i < at + length; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string clean_text(std::string_view text) {
  text = trimmed(text);
  std::string clean;
  clean.reserve(std::min(text.size(), kMaxText));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = printable_length(text, at);
    const std::size_t taken = length == 0 ? 1 : length;
    if (clean.size() + taken > kMaxText) break;
    clean.append(length == 0 ? std::string_view("?") : text.substr(at, length));
    at += taken;
  }
  // Cutting may have left a blank at the end.
  clean.resize(trimmed(clean).size());
  return clean;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kShown = 40;
  if (text.size() <= kShown) return clean_text(text);
  return clean_text(text.substr(0, kShown)) + "...";
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

}  // namespace xylem::topology
