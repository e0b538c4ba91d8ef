// SPDX-License-Identifier: Apache-2.0
//
// Parsers of setting values.
#include "config_values.h"

#include "xylem/collectives/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

namespace xylem::runtime {
namespace {

Status refused(std::string message) { return failure(Code::invalid_argument, std::move(message)); }

bool all_of_word(std::string_view text, std::string_view also) {
  return !text.empty() && std::ranges::all_of(text, [also](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also.find(c) != std::string_view::npos;
  });
}

/// Calls `check` for each part between commas. Returns false at the first part that fails.
template <typename Check>
bool every_part(std::string_view text, Check&& check) {
  for (;;) {
    const auto comma = text.find(',');
    if (!check(text.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

/// Names of the planners of one collective, or of all collectives; each name once.
std::vector<std::string_view> algorithm_names(std::optional<collectives::Collective> collective) {
  std::vector<std::string_view> names;
  for (const auto planners : {collectives::planners(), collectives::mapped_planners()}) {
    for (const collectives::Planner& planner : planners) {
      if (collective && planner.collective != *collective) continue;
      if (std::ranges::find(names, planner.name) == names.end()) names.push_back(planner.name);
    }
  }
  return names;
}

Status check_algorithm(std::string_view name) {
  const auto names = algorithm_names(std::nullopt);
  if (std::ranges::find(names, name) != names.end()) return {};
  return refused(
      fmt::format("it must be an algorithm, or operation=algorithm with commas between; "
                  "there is no algorithm \"{}\", but {}",
                  name, fmt::join(names, ", ")));
}

Status check_algorithm_of(std::string_view operation, std::string_view name) {
  const auto collective = collectives::parse_collective(operation);
  if (!collective) return collective.status();
  if (collectives::find_planner(*collective, name) != nullptr ||
      name == collectives::mapped_planner(*collective).name) {
    return {};
  }
  return refused(fmt::format("{} has no algorithm \"{}\", but {}", operation, name,
                             fmt::join(algorithm_names(*collective), ", ")));
}

}  // namespace

Result<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    return refused(fmt::format("it must be a whole number from {} to {}", least, most));
  }
  return value;
}

Result<std::chrono::nanoseconds> parse_wait(std::string_view text) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  constexpr auto kLongest = hours(24) * 365 * 10;
  const auto wait = parse_duration(text);
  if (!wait || *wait < milliseconds(1) || *wait > kLongest) {
    return refused("it must be a duration from 1 ms to 10 years, with ns, us, ms, s, min or h");
  }
  return *wait;
}

Result<bool> parse_switch(std::string_view text) {
  constexpr std::array<std::string_view, 4> kOn = {"on", "1", "true", "yes"};
  constexpr std::array<std::string_view, 4> kOff = {"off", "0", "false", "no"};
  if (std::ranges::find(kOn, text) != kOn.end()) return true;
  if (std::ranges::find(kOff, text) != kOff.end()) return false;
  return refused("it must be on or off");
}

Result<std::size_t> parse_word(std::string_view text, std::span<const std::string_view> words) {
  const auto found = std::ranges::find(words, text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  return refused(fmt::format("it must be one of {}", fmt::join(words, ", ")));
}

Status check_device_list(std::string_view text) {
  if (text.empty()) return {};
  const auto names = text.starts_with('^') ? text.substr(1) : text;
  if (every_part(names, [](std::string_view name) { return all_of_word(name, "_-.:@"); })) {
    return {};
  }
  return refused("it must be names with commas between, all to use or, after one ^, all to avoid");
}

Status check_algorithms(std::string_view text) {
  Status wrong;
  const auto is_choice = [&](std::string_view choice) {
    const auto equals = choice.find('=');
    wrong = equals == std::string_view::npos
                ? check_algorithm(choice)
                : check_algorithm_of(choice.substr(0, equals), choice.substr(equals + 1));
    return wrong.is_ok();
  };
  if (!text.empty()) (void)every_part(text, is_choice);
  return wrong;
}

Status check_token(std::string_view text) {
  constexpr std::size_t kLongest = 1024;
  const bool prints = std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
  if (!text.empty() && text.size() <= kLongest && prints) return {};
  return refused(
      fmt::format("it must be 1 to {} printable ASCII characters without blanks", kLongest));
}

}  // namespace xylem::runtime
