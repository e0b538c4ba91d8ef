// SPDX-License-Identifier: Apache-2.0
//
// Error messages about ranks that have not joined.
#include "bootstrap/rank_set.h"

#include "xylem/base/quantity.h"
#include "xylem/base/rank_list.h"

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
