// SPDX-License-Identifier: Apache-2.0
//
// Parsers of setting values: whole numbers in a range, durations, sizes, one of a few words, lists
// of devices. If parsing fails, the error message is the rule that the text breaks; load_config()
// adds the name of the setting and an example.
#pragma once

#include "xylem/base/quantity.h"
#include "xylem/base/status.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::runtime {

/// A whole number from `least` to `most`, written in digits only.
Result<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most);

/// A duration from 1 ms to 10 years; a bare number is seconds.
Result<std::chrono::nanoseconds> parse_wait(std::string_view text);

/// "on" or "off", or one of the spellings that people try first: 1, 0, true, false, yes, no.
Result<bool> parse_switch(std::string_view text);

/// The index of `text` in `words`.
Result<std::size_t> parse_word(std::string_view text, std::span<const std::string_view> words);

/// Checks "a,b" or "^a,b": names without blanks, and at most one '^', at the front. Empty text
/// means every device.
Status check_device_list(std::string_view text);

/// Checks "name" or "operation=name,operation=name"; each name must be that of a planner.
Status check_algorithms(std::string_view text);

/// Checks for 1 to 1024 printable characters without blanks, since the value is passed through
/// files and environment variables.
Status check_token(std::string_view text);

}  // namespace xylem::runtime
