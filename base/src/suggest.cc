// SPDX-License-Identifier: Apache-2.0
//
// Levenshtein distance, computed with a single row of the table.
#include "xylem/base/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace xylem {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view text, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  std::size_t fewest = 0;
  for (const std::string_view candidate : candidates) {
    const std::size_t edits = edits_between(text, candidate);
    const bool near = 3 * edits <= std::max(text.size(), candidate.size());
    if (near && (nearest.empty() || edits < fewest)) {
      nearest = candidate;
      fewest = edits;
    }
  }
  return nearest;
}

}  // namespace xylem
