// SPDX-License-Identifier: Apache-2.0
#include "progress/work_source.h"

#include <algorithm>
#include <ranges>

namespace xylem::runtime {

WorkSource::Need WorkSources::need() const noexcept {
  using Need = WorkSource::Need;
  Need most = is_tick_due_.load(std::memory_order_relaxed) ? Need::turn_now : Need::nothing;
  // Work moves from later to earlier sources: a submitted send of the scheduler becomes a header
  // that an earlier source, the HeaderPool, still holds. So the sources are read in reverse order;
  // otherwise the send could be missed at both. Where work moves to a later source, as when a
  // failure stops a mesh, the progress thread is woken in any case.
  for (const WorkSource* source : std::views::reverse(sources_)) {
    most = std::max(most, source->need());
  }
  return most;
}

unsigned WorkSources::turn(Token token) {
  unsigned done = 0;
  for (WorkSource* source : sources_) done += source->turn(token);
  // The tick comes last: messages that have arrived are handled before their sender is reported
  // missing.
  if (is_tick_due_.load(std::memory_order_relaxed) && is_tick_due_.exchange(false)) {
    const auto now = Clock::now();
    for (WorkSource* source : sources_) source->tick(token, now);
  }
  ++turns_.turns;
  if (done == 0) ++turns_.idle;
  return done;
}

bool WorkSources::arm(Token token, std::vector<pollfd>& descriptors) {
  if (needs_polling(token)) return false;
  // In reverse order, so that the wires are armed only if no later source has refused. After the
  // wires are armed, peers spend time on waking this rank.
  return std::ranges::all_of(std::views::reverse(sources_),
                             [&](WorkSource* source) { return source->arm(token, descriptors); });
}

bool WorkSources::does_any_need_polling(Token token) const noexcept {
  return std::ranges::any_of(
      sources_, [&](const WorkSource* source) { return source->needs_polling(token); });
}

}  // namespace xylem::runtime
