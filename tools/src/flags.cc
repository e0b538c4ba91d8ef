// SPDX-License-Identifier: Apache-2.0
//
// Values that several verbs use, and the format of help.
#include "flags.h"

#include "xylem/base/suggest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace xylem::tools {

HelpFormatter::HelpFormatter(std::string usage) : usage_(std::move(usage)) {
  constexpr std::size_t kDescriptionsFrom = 26;
  column_width(kDescriptionsFrom);
}

std::string HelpFormatter::make_usage(const CLI::App* /*verb*/, std::string /*name*/) const {
  return "Usage: " + usage_ + "\n";
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  const std::string whole = verb->get_description();
  return fmt::format("  {:<8}{}\n", verb->get_name(), whole.substr(0, whole.find('\n')));
}

Result<std::string> one_of(const std::string& text, std::span<const std::string_view> known) {
  if (std::ranges::find(known, text) != known.end()) return text;
  const auto nearest = nearest_name(text, known);
  return failure(Code::invalid_argument,
                 fmt::format("\"{}\" is none of {}{}", text, fmt::join(known, ", "),
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest)));
}

Parser<std::uint32_t> whole_number(std::uint32_t least, std::uint32_t most) {
  return [least, most](const std::string& text) -> Result<std::uint32_t> {
    std::uint32_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return value;
    return failure(Code::invalid_argument,
                   fmt::format("\"{}\" is no whole number from {} to {}", text, least, most));
  };
}

}  // namespace xylem::tools
