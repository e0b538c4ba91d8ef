// SPDX-License-Identifier: Apache-2.0
#include "xylem/execution/held_views.h"

#include "slices.h"
#include "xylem/base/copy.h"

namespace xylem::execution {

using collectives::kNone;

void HeldViews::add(Run& run, const HeldView& view) noexcept {
  ++run.views_held;
  ++count_;
  if (view.view.is_on_device) ++on_device_;
  ++changes_;
}

bool HeldViews::end(Run& run, HeldView& held) noexcept {
  if (held.views == nullptr) return true;
  const bool is_whole = held.views->release(held.view);
  held.views = nullptr;
  if (held.view.is_on_device) --on_device_;
  --run.views_held;
  --count_;
  ++changes_;
  return is_whole;
}

void HeldViews::release(Execution& execution, HeldView& held) {
  if (!end(execution.run, held)) on_withdrawn(execution, held.step);
}

StepId HeldViews::end_sources(Run& run, const ProgramStep& step, std::uint32_t slice) noexcept {
  StepId withdrawn = kNone;
  for (const OperandLayout& source : run.program->sources_of(step)) {
    HeldView* const held = run.view_of(source, slice);
    if (held != nullptr && !end(run, *held) && withdrawn == kNone) withdrawn = held->step;
  }
  return withdrawn;
}

void HeldViews::release_sources(Execution& execution,
                                const ProgramStep& step,
                                std::uint32_t slice) {
  const StepId withdrawn = end_sources(execution.run, step, slice);
  if (withdrawn != kNone) on_withdrawn(execution, withdrawn);
}

void HeldViews::release_all(Execution& execution) {
  Run& run = execution.run;
  if (run.views_held > 0) {
    for (HeldView& held : run.views) {
      // Views that a device still uses are released when the device's work has completed.
      if (!held.is_read && !held.is_evicted) release(execution, held);
    }
    for (HeldView& held : run.arrived) release(execution, held);
  }
  run.arrived.clear();
  for (const HeldView& view : run.unfetched) view.views->release(view.view);
  run.unfetched.clear();
}

void HeldViews::on_withdrawn(Execution& execution, StepId id) {
  if (!execution.health || execution.has_ended || execution.run.is_lost) return;
  execution.run.is_lost = true;
  const auto* const program = execution.run.program;
  const std::uint32_t peer =
      id == kPointToPoint ? kNone : program->lanes[program->steps[id].lane].peer;
  listener_.on_wire_error(execution, peer, Code::peer_lost);
}

bool HeldViews::evict(Execution* first) {
  if (count_ == 0) return false;
  std::uint32_t holders = 0;
  for (const Execution* at = first; at != nullptr; at = at->active_next) {
    if (at->run.views_held > 0) ++holders;
  }
  bool has_evicted = false;
  for (Execution *at = first, *next = nullptr; at != nullptr; at = next) {
    next = at->active_next;
    Run& run = at->run;
    const bool is_on_device = run.device.reader().kind != MemoryKind::host;
    if (run.views_held == 0 || (is_on_device && holders == 1)) continue;
    // If a message has been withdrawn, the listener may end executions, including the next one of
    // the list.
    at->acquire();
    if (next != nullptr) next->acquire();
    for (auto* const views : {&run.views, &run.arrived}) {
      for (std::size_t i = 0; i < views->size() && !at->has_ended; ++i) {
        has_evicted = evict_view(*at, (*views)[i]) || has_evicted;
      }
    }
    at->release();
    const bool is_next_gone = next != nullptr && next->has_ended;
    if (next != nullptr) next->release();
    if (is_next_gone) break;  // The rest is evicted in the next call.
  }
  return has_evicted;
}

bool HeldViews::evict_view(Execution& execution, HeldView& held) {
  if (held.views == nullptr || held.is_read || held.is_evicted) return false;
  auto& run = execution.run;
  if (!held.view.is_on_device) {
    const ProgramStep& step = run.program->steps[held.step];
    copy_bytes(run.address_of(step.target, held.slice), held.view.data,
               run.program->slice_size(step, held.slice));
    release(execution, held);
    return true;
  }
  if (!pin(listener_, execution, run.scratch)) return true;
  // Steps that read the slice wait until the device has copied it.
  const Ticket ticket = enqueue_to_target(run, held);
  held.is_evicted = ticket.is_pending();
  if (!held.is_evicted) {
    release(execution, held);
    return true;
  }
  pending_.add({.execution = &execution,
                .step = held.step,
                .slice = held.slice,
                .ticket = ticket,
                .evicts = true});
  return true;
}

void HeldViews::on_copied(const PendingWork::Work& work) {
  Run& run = work.execution->run;
  HeldView& held = run.view_at(run.program->steps[work.step].target, work.slice);
  held.is_evicted = false;
  release(*work.execution, held);
}

void HeldViews::evict_if_unchanged(Execution* first) {
  constexpr std::uint32_t kRoundsPerLook = 32;
  const bool is_unchanged = count_ > 0 && changes_ == seen_changes_;
  seen_changes_ = changes_;
  unchanged_rounds_ = is_unchanged ? unchanged_rounds_ + 1 : 0;
  if (!is_unchanged || unchanged_rounds_ % kRoundsPerLook != 0) return;
  const auto now = Clock::now();
  if (unchanged_rounds_ == kRoundsPerLook) unchanged_since_ = now;
  const auto delay = count_ > on_device_ ? delay_ : 100 * delay_;
  if (now - unchanged_since_ >= delay) evict(first);
}

}  // namespace xylem::execution
