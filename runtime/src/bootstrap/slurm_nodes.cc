// SPDX-License-Identifier: Apache-2.0
//
// Expansion of Slurm's lists of nodes.
#include "bootstrap/slurm_nodes.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace xylem::runtime {
namespace {

/// The largest number of nodes in a list. No machine has more, so a longer list is damaged.
constexpr std::size_t kMostNodes = 1U << 20;

Status malformed(std::string_view list, std::string_view what) {
  return failure(Code::invalid_argument,
                 fmt::format("Slurm's node list \"{}\" {}; expected, for example, node[01-03,07]",
                             list, what));
}

/// Appends to `out` each name of `prefixes` followed by each number of "01-03" or "07". False if
/// `range` is not a range.
bool append_range(std::string_view range,
                  const std::vector<std::string>& prefixes,
                  std::vector<std::string>& out) {
  const auto dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto read = [](std::string_view digits, std::uint64_t& value) {
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && stop == end;
  };
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  if (!read(first, from) || !read(last, to) || to < from) return false;
  if (to - from >= kMostNodes || out.size() + (to - from + 1) * prefixes.size() > kMostNodes)
    return false;
  for (const std::string& prefix : prefixes) {
    for (std::uint64_t number = from; number <= to; ++number) {
      out.push_back(fmt::format("{}{:0{}}", prefix, number, first.size()));
    }
  }
  return true;
}

/// The names that one entry such as "rack[1-2]node[01-03]" stands for.
Result<std::vector<std::string>> expand_entry(std::string_view list, std::string_view entry) {
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    const auto open = entry.find('[');
    for (std::string& name : names) name += entry.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = entry.find(']', open);
    if (close == std::string_view::npos)
      return malformed(list, "has a bracket that does not close");
    std::string_view ranges = entry.substr(open + 1, close - open - 1);
    std::vector<std::string> longer;
    for (;;) {
      const auto comma = ranges.find(',');
      if (!append_range(ranges.substr(0, comma), names, longer))
        return malformed(list, "has a range that is none");
      if (comma == std::string_view::npos) break;
      ranges.remove_prefix(comma + 1);
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view list) {
  std::vector<std::string> nodes;
  std::size_t depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    const auto entry = list.substr(begin, i - begin);
    if (entry.empty()) return malformed(list, "has an empty name");
    XYLEM_TRY(const auto names, expand_entry(list, entry));
    nodes.insert(nodes.end(), names.begin(), names.end());
    if (nodes.size() > kMostNodes) return malformed(list, "has too many nodes");
    begin = i + 1;
  }
  return nodes;
}

}  // namespace xylem::runtime
