// SPDX-License-Identifier: Apache-2.0
#include "xylem/base/rank_list.h"

#include <fmt/format.h>

#include <cstddef>

namespace xylem {

std::string rank_list(std::span<const std::uint32_t> ranks) {
  constexpr std::size_t kMostGroups = 16;
  constexpr std::size_t kShortestRange = 4;
  std::string text;
  std::size_t groups = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    if (groups++ == kMostGroups) return text + fmt::format(" and {} more", ranks.size() - i);
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < kShortestRange) end = i + 1;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace xylem
