// SPDX-License-Identifier: Apache-2.0
//
// Error messages about ranks that have not joined.
#include "bootstrap/rank_set.h"

#include "xylem/base/quantity.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {
namespace {

/// The waiting time, rounded: it is close to the configured limit, so odd milliseconds would only
/// distract.
std::string elapsed_text(Clock::duration elapsed) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const auto whole = std::chrono::round<seconds>(elapsed);
  if (whole >= seconds(2)) return fmt::format("{} s", whole.count());
  return format_duration(std::chrono::round<milliseconds>(elapsed));
}

}  // namespace

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

bool RankSet::complete() const {
  return std::ranges::all_of(here_, [](bool here) { return here; });
}

std::vector<std::uint32_t> RankSet::missing() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < here_.size(); ++rank) {
    if (!here_[rank]) ranks.push_back(rank);
  }
  return ranks;
}

Status RankSet::missing_error() const {
  std::vector<std::uint32_t> present;
  for (std::uint32_t rank = 0; rank < here_.size(); ++rank) {
    if (here_[rank]) present.push_back(rank);
  }
  const auto absent = missing();
  const auto first = absent.empty() ? std::nullopt : std::optional(absent.front());
  return failure(
      Code::timed_out,
      fmt::format("rank{} {} did not come within {}; {} {} here", absent.size() == 1 ? "" : "s",
                  rank_list(absent), elapsed_text(Clock::now() - since_), rank_list(present),
                  present.size() == 1 ? "is" : "are"),
      first);
}

}  // namespace xylem::runtime
