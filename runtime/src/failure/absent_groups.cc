// SPDX-License-Identifier: Apache-2.0
#include "failure/absent_groups.h"

#include <algorithm>
#include <utility>

namespace xylem::runtime {
namespace {

template <typename T>
void add(std::deque<T>& kept, const T& next, std::size_t most) {
  kept.push_back(next);
  if (kept.size() > most) kept.pop_front();
}

/// Removes the messages about `group` from `kept`, and returns them.
template <typename T>
std::vector<T> take_from(std::deque<T>& kept, std::uint64_t group) {
  std::vector<T> taken;
  std::erase_if(kept, [&](const T& message) {
    if (message.group != group) return false;
    taken.push_back(message);
    return true;
  });
  return taken;
}

}  // namespace

void AbsentGroups::keep(const Roll& roll) {
  if (!has_ended(roll.group)) add(rolls_, roll, kMostKept);
}

void AbsentGroups::keep(const Goodbye& goodbye) {
  if (!has_ended(goodbye.group)) add(goodbyes_, goodbye, kMostKept);
}

void AbsentGroups::keep(const Verdict& verdict) {
  const auto known = std::ranges::find(verdicts_, verdict.group, &Verdict::group);
  if (known == verdicts_.end() && !has_ended(verdict.group)) add(verdicts_, verdict, kMostKept);
}

AbsentGroups::Kept AbsentGroups::take(std::uint64_t group) {
  Kept kept{take_from(rolls_, group), take_from(goodbyes_, group), std::nullopt};
  for (Verdict& verdict : take_from(verdicts_, group)) kept.verdict = std::move(verdict);
  return kept;
}

void AbsentGroups::note_end(std::uint64_t group) { add(ended_, group, kMostEnded); }

bool AbsentGroups::has_ended(std::uint64_t group) const {
  return std::ranges::find(ended_, group) != ended_.end();
}

}  // namespace xylem::runtime
