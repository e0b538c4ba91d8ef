// SPDX-License-Identifier: Apache-2.0
//
// The messages for keys and values that break the rules.
#include "bootstrap/store_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {

Status check_entry(std::string_view key, std::size_t value_bytes) {
  const bool prints = std::ranges::all_of(key, [](char c) { return c > ' ' && c < 127; });
  if (key.empty() || key.size() > kLongestKey || !prints) {
    return failure(
        Code::invalid_argument,
        fmt::format("store key \"{}\" must be 1 to {} printable ASCII characters without "
                    "blanks",
                    prints ? key : "(unprintable)", kLongestKey));
  }
  if (value_bytes > kLargestValue) {
    return failure(Code::invalid_argument,
                   fmt::format("value of store key \"{}\" has {} bytes, more than {}", key,
                               value_bytes, kLargestValue));
  }
  return {};
}

Status set_twice(std::string_view key) {
  return failure(Code::invalid_argument, fmt::format("store key \"{}\" was set before", key));
}

}  // namespace xylem::runtime
