// SPDX-License-Identifier: Apache-2.0
//
// How a group ends: it fails (poison), is destroyed or aborted by its user, or closed with the job.
#include "groups/group.h"
#include "progress/core_binding.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::runtime {

Status Group::destroyed() {
  return failure(Code::invalid_argument, "the communicator was destroyed; make another");
}

void Group::poison(const Status& why) {
  if (!is_well()) return;
  health_ = why;
  stop_mesh();
  deferred_ = nullptr;
  deferred_tail_ = &deferred_;
  Engine& engine = context_->engine;
  for (Operation* operation = as_operation(engine.active()); operation != nullptr;) {
    Operation* next = as_operation(operation->active_next);
    if (operation->group.get() == this) engine.fail(*operation, why);
    operation = next;
  }
  // They fail together, since messages for their common slot are dropped from now on.
  if (parent_ != nullptr) parent_->poison(why);
  if (companion_ != nullptr) companion_->poison(why);
  if (!spec_.is_companion) context_->registry.on_poisoned(spec_.slot());
  if (tell_failure_ && !has_program_ended_) {
    const auto tell = std::exchange(tell_failure_, nullptr);
    CoreBinding::release_this_thread();
    tell(health_);
  }
  context_->keeper.wake();
}

void Group::on_failure(std::function<void(const Status&)> tell) {
  if (!context_->process.allows()) return;
  context_->progress.with_token([&] {
    if (!health_ && tell) return tell(health_);
    tell_failure_ = std::move(tell);
  });
}

void Group::announce(Code code, std::optional<std::uint32_t> culprit, std::string message) {
  if (!is_well()) return;
  // The other ranks may not have made the companion yet.
  if (parent_ != nullptr) return parent_->announce(code, culprit, std::move(message));
  if (code != Code::cancelled) context_->logger.error(message);
  context_->control->flood(encode(Verdict{uid(), code, culprit, message}));
  poison(failure(code, std::move(message), culprit));
}

void Group::suspect(Status why) {
  context_->failures.suspect(weak_from_this(), std::move(why), Suspicion::Leaver::counts);
}

Status Group::destroy() {
  if (context_->process.is_forked()) return context_->process.check();
  wait_for_mesh();
  return context_->progress.with_token([this]() -> Status {
    launch_all(context_->inbox);
    if (const auto left = pending() + (companion_ ? companion_->pending() : 0); left > 0) {
      return failure(Code::busy, fmt::format("{} operations of {} are pending; wait for them "
                                             "first, or abort it",
                                             left, label()));
    }
    say_goodbye();
    leave();
    return {};
  });
}

Status Group::abort(std::string_view why) {
  if (Status alive = context_->process.check(); !alive) return alive;
  return context_->progress.with_token([&]() -> Status {
    if (has_left_) return destroyed();
    announce(Code::cancelled, spec_.own_world_rank(),
             fmt::format("rank {} aborted {}: {}", spec_.own_world_rank(), label(), why));
    return {};
  });
}

void Group::close() {
  context_->progress.with_token([this] { leave(); });
}

/// Tells the other members that this one makes no further call. They know already if the group has
/// failed.
void Group::say_goodbye() {
  if (companion_ != nullptr) companion_->say_goodbye();
  if (is_well() && size() > 1) observer_.on_destroyed(*this);
}

void Group::leave() {
  if (has_left_) return;
  has_left_ = true;
  if (companion_ != nullptr) companion_->leave();
  messages_.close();
  observer_.on_left(*this);
  context_->registry.delist(uid());
  if (!spec_.is_companion) context_->registry.vacate(spec_.slot());
}

}  // namespace xylem::runtime
