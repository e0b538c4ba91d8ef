// SPDX-License-Identifier: Apache-2.0
#include "xylem/topology/cpu_set.h"

#include "text.h"
#include "xylem/base/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ranges>

namespace xylem::topology {
namespace {

Status not_a_list(std::string_view text) {
  return failure(
      Code::invalid_argument,
      fmt::format("\"{}\" is no CPU list (ranges of numbers up to {}, such as 0-15,128-143)",
                  excerpt(text), kMaxCpu));
}

constexpr std::uint32_t kWordBits = 32;
constexpr std::size_t kMaxWords = (kMaxCpu + 1) / kWordBits;

std::optional<std::uint32_t> parse_word(std::string_view word) {
  if (word.empty()) return 0;
  if (word.starts_with("0x")) word.remove_prefix(2);
  return parse_number<std::uint32_t>(word, 16);
}

void add_word(CpuSet& set, std::uint32_t word, std::uint32_t offset) {
  while (word != 0) {
    const auto first = static_cast<std::uint32_t>(std::countr_zero(word));
    const auto length = static_cast<std::uint32_t>(std::countr_one(word >> first));
    set.add(offset + first, offset + first + length - 1);
    if (first + length == kWordBits) return;
    word &= ~std::uint32_t{0} << (first + length);
  }
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

std::optional<CpuSet> CpuSet::parse_bitmap(std::string_view text) {
  const auto words = static_cast<std::size_t>(std::ranges::count(text, ',')) + 1;
  if (text.empty() || words > kMaxWords) return std::nullopt;
  CpuSet set;
  std::string_view rest = text;
  // Starts at the least significant word, so that ranges are only appended.
  for (std::size_t i = 0; i < words; ++i) {
    const auto comma = rest.rfind(',');
    const auto start = comma == std::string_view::npos ? 0 : comma + 1;
    const auto word = parse_word(rest.substr(start));
    if (!word) return std::nullopt;
    add_word(set, *word, static_cast<std::uint32_t>(i) * kWordBits);
    rest = rest.substr(0, start == 0 ? 0 : comma);
  }
  return set;
}

void CpuSet::add(std::uint32_t first, std::uint32_t last) {
  XYLEM_CHECK(first <= last && last <= kMaxCpu, first, last);
  // Merges all ranges that overlap or touch the new one.
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

std::string CpuSet::to_bitmap() const {
  if (empty()) return "0";
  constexpr std::uint32_t kBits = 32;
  std::vector<std::uint32_t> words(ranges_.back().last / kBits + 1, 0);
  for (const Range& range : ranges_) {
    for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) {
      words[cpu / kBits] |= 1U << cpu % kBits;
    }
  }
  std::string text;
  for (const std::uint32_t word : words | std::views::reverse) {
    text += fmt::format("{}{:08x}", text.empty() ? "" : ",", word);
  }
  return text;
}

}  // namespace xylem::topology
