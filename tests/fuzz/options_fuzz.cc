// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary text as sizes, durations and log options. Parsing returns an error, or a value that
// stays the same when it is printed and parsed again.
#include "xylem/base/check.h"
#include "xylem/base/log.h"
#include "xylem/base/quantity.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = xylem::parse_bytes(text)) {
    const auto printed = xylem::format_bytes(*bytes);
    // Printing rounds, so the text of a huge size may exceed the largest size. Every other text
    // must parse.
    const auto back = xylem::parse_bytes(printed);
    XYLEM_CHECK(back.is_ok() || bytes->value > UINT64_MAX / 2, printed);
  }
  if (const auto duration = xylem::parse_duration(text)) {
    XYLEM_CHECK(*duration >= std::chrono::nanoseconds::zero(), duration->count());
    const auto back = xylem::parse_duration(xylem::format_duration(*duration));
    XYLEM_CHECK(back.is_ok() || *duration > std::chrono::nanoseconds::max() / 2, duration->count());
  }
  if (const auto options = xylem::parse_log_options(text)) {
    XYLEM_CHECK(options->file.empty() || text.ends_with(options->file), text);
  }
  return 0;
}
