// SPDX-License-Identifier: Apache-2.0
#include "groups/group_spec.h"

#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace xylem::runtime {

std::uint64_t GroupSpec::companion_uid() const noexcept {
  constexpr std::uint64_t kCompanion = 0x636f6d70;
  return combine(uid, kCompanion);
}

std::vector<transport::Tag> GroupSpec::tags() const {
  const auto kind = is_companion ? execution::TagKind::companion : execution::TagKind::collective;
  std::vector<transport::Tag> tags;
  tags.reserve(slots.size());
  for (const std::uint32_t slot : slots) tags.push_back(execution::group_tag(kind, slot));
  return tags;
}

std::string GroupSpec::label() const {
  const char* const companion = is_companion ? "the companion of " : "";
  if (number() == 0) return fmt::format("{}communicator 0", companion);
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min<std::size_t>(size(), kShown);
  std::string text =
      fmt::format("{}communicator {} of {} {}", companion, number(), size() == 1 ? "rank" : "ranks",
                  fmt::join(std::span(world_ranks).first(shown), ", "));
  if (shown < size()) text += fmt::format(" and {} others", size() - shown);
  return text;
}

}  // namespace xylem::runtime
