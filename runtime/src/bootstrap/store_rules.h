// SPDX-License-Identifier: Apache-2.0
//
// Rules for all stores of Xylem: the limits of keys and values, and how long a store is kept.
#pragma once

#include "xylem/base/status.h"

#include <chrono>
#include <cstddef>
#include <string_view>

namespace xylem::runtime {

inline constexpr std::size_t kLongestKey = 200;
inline constexpr std::size_t kLargestValue = std::size_t{64} * 1024;
/// How long rank 0 keeps a store after a failed start, so that late ranks learn of the failure.
inline constexpr auto kFarewell = std::chrono::seconds(2);

/// Keys are 1 to kLongestKey printable characters without blanks; values are at most kLargestValue
/// bytes.
Status check_entry(std::string_view key, std::size_t value_bytes);
/// The error for a key that was set before.
Status set_twice(std::string_view key);

}  // namespace xylem::runtime
