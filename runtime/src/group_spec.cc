// SPDX-License-Identifier: Apache-2.0
#include "group_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace xylem::runtime {

std::string GroupSpec::label() const {
  if (number() == 0) return "communicator 0";
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min<std::size_t>(size(), kShown);
  std::string text =
      fmt::format("communicator {} of {} {}", number(), size() == 1 ? "rank" : "ranks",
                  fmt::join(std::span(world_ranks).first(shown), ", "));
  if (shown < size()) text += fmt::format(" and {} others", size() - shown);
  return text;
}

}  // namespace xylem::runtime
