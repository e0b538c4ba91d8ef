// SPDX-License-Identifier: Apache-2.0
//
// Readers of the values that settings hold: whole numbers in a range, durations, sizes, one of a
// few words, lists of devices. Each refuses with the rule and an example, so that the caller only
// has to say which setting it was.
#pragma once

#include "xylem/base/quantity.h"
#include "xylem/base/status.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

namespace xylem::runtime {

/// Digits only, from `least` to `most`.
Result<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most);

/// A duration from 1 ms to 10 years; a bare number is seconds.
Result<std::chrono::nanoseconds> parse_wait(std::string_view text);

/// on, off, and the spellings people try first: 1, 0, true, false, yes, no.
Result<bool> parse_switch(std::string_view text);

/// The index of `text` in `words`.
Result<std::size_t> parse_word(std::string_view text, std::span<const std::string_view> words);

/// "a,b" or "^a,b": names without blanks, at most one '^', in front. Empty is every device.
Status check_device_list(std::string_view text);

/// "name" or "operation=name,operation=name"; which names exist is the planners' to say.
Status check_algorithms(std::string_view text);

/// 1 to 1024 characters that print, without blanks: it travels through files and environments.
Status check_token(std::string_view text);

}  // namespace xylem::runtime
