// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/cpu_set.h"

#include "text.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::topology {
namespace {

Status not_a_list(std::string_view text) {
  return failure(
      Code::invalid_argument,
      fmt::format("\"{}\" is no CPU list (ranges of numbers up to {}, such as 0-15,128-143)",
                  excerpt(text), kMaxCpu));
}

}  // namespace

Result<CpuSet> CpuSet::parse(std::string_view text) {
  CpuSet set;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    if (comma != std::string_view::npos && comma + 1 == rest.size()) return not_a_list(text);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);

    const auto dash = item.find('-');
    const auto first = parse_number<std::uint32_t>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<std::uint32_t>(item.substr(dash + 1));
    if (!first || !last || *first > *last || *last > kMaxCpu) return not_a_list(text);
    set.add(*first, *last);
  }
  return set;
}

void CpuSet::add(std::uint32_t first, std::uint32_t last) {
  XYLEM_CHECK(first <= last && last <= kMaxCpu, first, last);
  // All ranges that overlap or touch the new one become one with it.
  const auto begin = std::ranges::lower_bound(ranges_, first, {},
                                              [](const Range& range) { return range.last + 1; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), Range{first, last});
}

std::uint32_t CpuSet::count() const noexcept {
  std::uint32_t count = 0;
  for (const Range& range : ranges_) count += range.last - range.first + 1;
  return count;
}

bool CpuSet::contains(std::uint32_t cpu) const noexcept {
  const auto at = std::ranges::lower_bound(ranges_, cpu, {}, &Range::last);
  return at != ranges_.end() && at->first <= cpu;
}

bool CpuSet::intersects(const CpuSet& other) const noexcept {
  auto mine = ranges_.begin();
  auto theirs = other.ranges_.begin();
  while (mine != ranges_.end() && theirs != other.ranges_.end()) {
    if (mine->last < theirs->first) {
      ++mine;
    } else if (theirs->last < mine->first) {
      ++theirs;
    } else {
      return true;
    }
  }
  return false;
}

std::string CpuSet::to_string() const {
  std::string text;
  for (const Range& range : ranges_) {
    if (!text.empty()) text += ',';
    text += std::to_string(range.first);
    if (range.last != range.first) text += '-' + std::to_string(range.last);
  }
  return text;
}

}  // namespace xylem::topology
