// SPDX-License-Identifier: Apache-2.0
#include "groups/group.h"

#include "calls/operands.h"
#include "calls/plan_site.h"
#include "calls/work_access.h"
#include "progress/core_binding.h"

#include <fmt/format.h>

#include <utility>

namespace xylem::runtime {
namespace {

Status no_messages() {
  return failure(Code::unsupported,
                 "messages do not go through a companion: send and receive on its communicator");
}

Status destroyed() {
  return failure(Code::invalid_argument, "the communicator was destroyed; make another");
}

}  // namespace

Group::Group(Token token,
             std::shared_ptr<Context> context,
             GroupObserver& observer,
             GroupSpec spec,
             collectives::CostModel model)
    : context_(std::move(context)),
      observer_(observer),
      spec_(std::move(spec)),
      plans_(site_of(*context_, spec_), std::move(model), context_->logger),
      mesh_(*context_, spec_, plans_),
      peers_{spec_.rank, spec_.tags(), std::vector<execution::Link>(spec_.world_ranks.size())},
      collectives_(*this, spec_, *context_, peers_, plans_),
      messages_(*this,
                spec_,
                peers_,
                *context_->wires,
                *context_->control,
                context_->scheduler.engine(token),
                context_->headers.get(token)) {
  mesh_.assume_devices(token);
}

std::shared_ptr<Group> Group::make(const std::shared_ptr<Context>& context,
                                   GroupObserver& observer,
                                   GroupSpec spec,
                                   collectives::CostModel model) {
  return context->progress.with_token([&](Token token) {
    const std::shared_ptr<Group> group(
        new Group(token, context, observer, std::move(spec), std::move(model)), &Group::retire);
    group->attach_mesh();
    group->enlist(token);
    return group;
  });
}

/// Registers the group, so that deaths and verdicts are reported to it. Deaths and verdicts that
/// were reported before the group existed take effect here.
void Group::enlist(Token token) {
  context_->registry.enlist(token, spec_.uid, weak_from_this());
  for (const std::uint32_t member : spec_.world_ranks) {
    const Status& lost = context_->failures.lost(token, member);
    if (!lost.is_ok()) poison(lost);
  }
  observer_.on_enlisted(token, *this);
}

/// Called when the last reference to the group is dropped. Registers the group for deletion under
/// the token, and deletes it at once if the token is free.
void Group::retire(Group* group) {
  const std::shared_ptr<Context> context = group->context_;
  DeferredDelete dead(group, [](Group* last) { std::default_delete<Group>()(last); });
  if (context->process.is_forked()) return;
  context->registry.defer_delete(std::move(dead));
  if (context->process.is_closed()) return;
  if (context->progress.try_acquire()) {
    context->registry.delete_deferred(context->progress.assert_held());
    context->progress.release();
  } else {
    context->progress.notify();
    context->thread.wake();
  }
}

Group::~Group() {
  if (companion_ != nullptr) companion_->parent_ = nullptr;
  if (!context_->process.allows()) return;
  const Token token = context_->progress.assert_held();
  say_goodbye(token);
  leave(token);
}

// ---- calls ----

Work Group::collective(EvenArguments& arguments) {
  Context& context = *context_;
  if (!context.process.allows()) return WorkAccess::refused(context.process.check());
  find_memory(caller(), arguments.input, arguments.output);
  if (Scheduler::CallScope scope(context.scheduler); scope.has_token()) {
    if (auto work = collectives_.try_start(scope.token(), arguments)) {
      if (WorkAccess::has_no_operation(*work)) scope.note_complete();
      return *std::move(work);
    }
    scope.note_complete();  // Nothing was started.
  }
  return submit(even_call(caller(), arguments));
}

Work Group::send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag) {
  if (!context_->process.allows()) return WorkAccess::refused(context_->process.check());
  if (spec_.is_companion) return WorkAccess::refused(no_messages());
  find_memory(caller(), buffer);
  if (buffer.memory.kind != MemoryKind::host) return submit(send_call(caller(), buffer, to, tag));
  if (Status right = check_send(caller(), buffer, to); !right) {
    return WorkAccess::refused(std::move(right));
  }
  return message([&](Token /*token*/) { return messages_.try_send(buffer, to, tag); },
                 [&](Call& call) { set_send(call, buffer, to, tag); });
}

Work Group::recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag) {
  if (!context_->process.allows()) return WorkAccess::refused(context_->process.check());
  if (spec_.is_companion) return WorkAccess::refused(no_messages());
  find_memory(caller(), buffer);
  if (buffer.memory.kind != MemoryKind::host) return submit(recv_call(caller(), buffer, from, tag));
  if (Status right = check_recv(caller(), buffer, from); !right) {
    return WorkAccess::refused(std::move(right));
  }
  // A receive that completes here runs no round of the engine. So this is tried only if no
  // execution is active, which could need a round.
  const auto try_now = [&](Token token) {
    const bool is_idle = from && context_->scheduler.engine(token).active() == nullptr;
    return is_idle ? messages_.try_recv(buffer, *from, tag) : std::nullopt;
  };
  return message(try_now, [&](Call& call) { set_recv(call, buffer, from, tag); });
}

/// Sends or receives a message. `try_now(Token)` sends or receives it within this call, if
/// possible. Otherwise the message becomes an operation, whose call `set_call` fills in.
template <typename TryNow, typename SetCall>
Work Group::message(const TryNow& try_now, const SetCall& set_call) {
  Scheduler::CallScope scope(context_->scheduler);
  if (scope.has_token() && health_) {
    if (std::optional<Work> work = try_now(scope.token())) {
      if (WorkAccess::has_no_operation(*work)) scope.note_complete();
      return *std::move(work);
    }
  }
  Operation& operation = make_operation();
  set_call(operation.call);
  Work work = WorkAccess::of(operation);
  if (scope.has_token()) {
    context_->scheduler.launch(scope.token(), operation);
  } else {
    context_->scheduler.submit(operation);
  }
  return work;
}

Work Group::submit(Result<Call> checked) {
  if (!checked) return WorkAccess::refused(checked.status());
  Call& call = *checked;
  Context& context = *context_;
  if (Status alive = context.process.check(); !alive) return WorkAccess::refused(std::move(alive));
  const bool is_collective = call.kind == CallKind::collective;
  if (spec_.is_companion && !is_collective) return WorkAccess::refused(no_messages());
  if (auto agreement = mesh_.agreement_on(call)) {
    call.agreement = *agreement;
  } else {
    // The call has a number, which the other ranks' calls have, too.
    context.progress.with_token([&](Token /*token*/) {
      announce(agreement.status().code(), spec_.own_world_rank(),
               fmt::format("rank {}: {}", spec_.own_world_rank(), agreement.status().message()));
    });
    return WorkAccess::refused(agreement.status());
  }
  if (call.is_on_mesh() && call.stream) {
    if (Status right = mesh_.check(*call.stream); !right) {
      return WorkAccess::refused(std::move(right));
    }
  }
  Result<std::shared_ptr<Plan>> plan = std::shared_ptr<Plan>();
  if (is_collective) plan = plans_.plan_for(call);
  Operation& operation = make_operation();
  Work work = WorkAccess::of(operation);
  operation.call = std::move(call);
  place_on_device(operation, context.devices);
  if (operation.call.is_on_mesh()) {
    mesh_.start(operation, std::move(plan));
    return work;
  }
  operation.unplanned = plan.status();
  if (plan) operation.plan = std::move(plan).value();
  reserve_memory(operation, is_collective
                                ? Staging::never
                                : messages_.staging_of(operation.call, operation.run.device));
  if (Status joined = join_stream(operation); !joined) {
    operation.end(std::move(joined));
    operation.release();
    return work;
  }
  context.scheduler.start(operation);
  return work;
}

/// Takes an operation from the pool. Any thread may call this.
Operation& Group::make_operation() {
  Operation& operation = context_->operations.take(self());
  operation.source = spec_.own_world_rank();
  operation.peers = &peers_;
  return operation;
}

Operation& Group::begin_operation() { return activate(make_operation()); }

Operation& Group::adopt_spare() {
  Operation& operation = context_->operations.keep_spare(context_->progress.assert_held(), self());
  operation.source = spec_.own_world_rank();
  operation.peers = &peers_;
  return activate(operation);
}

Operation& Group::activate(Operation& operation) {
  ++pending_;
  context_->scheduler.activate(context_->progress.assert_held(), operation);
  return operation;
}

// ---- operations under way ----

void Group::launch(Token token, Operation& operation) noexcept {
  ++pending_;
  if (!health_) {
    mesh_.stop(token);  // Releases the stream, if the call is enqueued on it.
    return context_->scheduler.engine(token).fail(operation, has_left_ ? destroyed() : health_);
  }
  mesh_.send_posts(token);
  if (operation.call.kind == CallKind::collective) return collectives_.launch(token, operation);
  if (connect(token, operation.call.peer)) messages_.start(operation);
}

/// Sets the link to a rank of the group, or to all ranks for kNone. False if there is no
/// connection; the group will then fail.
bool Group::connect(Token token, std::uint32_t rank) {
  const bool any = rank == collectives::kNone;
  const std::uint32_t first = any ? 0 : rank;
  const std::uint32_t last = any ? spec_.size() : first + 1;
  for (std::uint32_t peer = first; peer < last; ++peer) {
    auto link = context_->wires->link(token, spec_.world_ranks[peer]);
    if (!link) {
      suspect(link.status());
      return false;
    }
    peers_.links[peer] = *link;
  }
  return true;
}

void Group::on_ended(Token token, Operation& operation) {
  if (operation.mesh != nullptr) operation.mesh->on_ended();
  --pending_;
  if (operation.call.kind != CallKind::collective) return messages_.forget(operation);
  collectives_.on_ended(token);
}

void Group::on_wire_error(Token /*token*/, Operation& operation, std::uint32_t peer, Code code) {
  if (peer == collectives::kNone) peer = operation.call.peer;
  // A receive from any source has a peer only after it has matched a message.
  const std::uint32_t culprit =
      peer == collectives::kNone ? operation.source : spec_.world_ranks[peer];
  const std::uint32_t self = spec_.own_world_rank();
  if (code == Code::mismatch) {
    return announce(
        code, culprit,
        fmt::format("rank {} got a message of another size from rank {} than it expects in {}",
                    self, culprit, history().name_of(operation.sequence)));
  }
  suspect(failure(
      code, fmt::format("rank {} lost its connection to rank {} ({})", self, culprit, name(code)),
      culprit));
}

Status Group::on_compute_error(Token /*token*/, Operation& operation, const Status& why) {
  const std::uint32_t self = spec_.own_world_rank();
  announce(why.code(), self,
           fmt::format("rank {} cannot go on with {}: {}", self,
                       history().name_of(operation.sequence), why.message()));
  return health_;
}

// ---- messages of the mesh ----

Result<Binding> Group::bind(const Memory& device) {
  return mesh_.bind(device, [this](Call&& call) { return submit(std::move(call)); });
}

/// Lets the mesh send and receive notes.
void Group::attach_mesh() {
  mesh_.attach(
      {.send =
           [this](Token token, std::uint32_t to, std::span<const std::byte> bytes) {
             if (health_ && connect(token, to)) messages_.send_note(to, bytes);
           },
       .listen =
           [this](Token token) {
             if (health_ && connect(token, collectives::kNone)) messages_.receive_notes();
           },
       .hasten = [this](Token /*token*/, bool are_urgent) { messages_.hasten_notes(are_urgent); },
       .hold = [weak = weak_from_this()]() -> std::shared_ptr<void> { return weak.lock(); }});
}

void Group::on_note(std::uint32_t from, std::span<const std::byte> bytes) {
  mesh_.on_note(context_->progress.assert_held(), from, bytes);
}

void Group::on_call(const CallRecord& record) {
  observer_.on_call(context_->progress.assert_held(), *this, record);
}

// ---- failure ----

void Group::poison(const Status& why) {
  if (!health_) return;
  const Token token = context_->progress.assert_held();
  has_failed_ = true;
  health_ = why;
  mesh_.stop(token);
  collectives_.drop_deferred();
  Engine& engine = context_->scheduler.engine(token);
  for (Operation* operation = as_operation(engine.active()); operation != nullptr;) {
    Operation* next = as_operation(operation->active_next);
    if (operation->owner.get() == this) engine.fail(*operation, why);
    operation = next;
  }
  // A group and its companion fail together, since all messages for their common tag slot are
  // dropped after a failure.
  if (parent_ != nullptr) parent_->poison(why);
  if (companion_ != nullptr) companion_->poison(why);
  if (!spec_.is_companion) context_->registry.on_poisoned(token, spec_.slot());
  if (tell_failure_ && !context_->process.has_program_ended()) {
    const auto tell = std::exchange(tell_failure_, nullptr);
    CoreBinding::release_this_thread();
    tell(health_);
  }
  context_->thread.wake();
}

void Group::on_failure(std::function<void(const Status&)> tell) {
  if (!context_->process.allows()) return;
  context_->progress.with_token([&](Token /*token*/) {
    if (has_failed_ && tell) return tell(health_);
    tell_failure_ = std::move(tell);
  });
}

void Group::announce(Code code, std::optional<std::uint32_t> culprit, std::string message) {
  if (!health_) return;
  // The error of a companion is announced for its parent, since other ranks may not have made the
  // companion yet.
  if (parent_ != nullptr) return parent_->announce(code, culprit, std::move(message));
  if (code != Code::cancelled) context_->logger.error(message);
  const Verdict verdict{spec_.uid, code, culprit, message};
  context_->control->flood(encode(verdict), topic_of(verdict));
  poison(failure(code, std::move(message), culprit));
}

void Group::suspect(Status why) {
  context_->failures.suspect(context_->progress.assert_held(), weak_from_this(), std::move(why),
                             Suspicion::Leaver::counts);
}

bool Group::has_left(std::uint32_t rank) const noexcept {
  return context_->failures.has_left(context_->progress.assert_held(), spec_.world_ranks[rank]);
}

Status Group::abort(std::string_view why) {
  if (Status alive = context_->process.check(); !alive) return alive;
  return context_->progress.with_token([&](Token /*token*/) -> Status {
    if (has_left_) return destroyed();
    announce(Code::cancelled, spec_.own_world_rank(),
             fmt::format("rank {} aborted {}: {}", spec_.own_world_rank(), spec_.label(), why));
    return {};
  });
}

// ---- companion, and the end ----

std::shared_ptr<OperationOwner> Group::self() noexcept {
  if (parent_ == nullptr) return shared_from_this();
  return {parent_->shared_from_this(), this};
}

Result<std::shared_ptr<Group>> Group::companion() {
  if (Status alive = context_->process.check(); !alive) return alive;
  if (spec_.is_companion) {
    return failure(Code::unsupported, "a companion has no companion of its own");
  }
  const Lock lock(companion_mutex_);
  if (companion_ == nullptr) {
    GroupSpec spec = spec_;
    spec.is_companion = true;
    spec.uid = spec_.companion_uid();
    const auto made = make_another(std::move(spec), plans_.model());
    context_->progress.with_token([&](Token token) {
      companion_ = made;
      made->parent_ = this;
      if (has_left_) made->leave(token);
      // The group or the companion may have failed before each had a pointer to the other.
      if (!health_) made->poison(health_);
      if (!made->health_) poison(made->health_);
    });
  }
  return std::shared_ptr<Group>(shared_from_this(), companion_.get());
}

Status Group::destroy() {
  if (context_->process.is_forked()) return context_->process.check();
  mesh_.drain([this](Token /*token*/) { return pending_; });
  return context_->progress.with_token([this](Token token) -> Status {
    context_->scheduler.launch_submitted(token);
    if (const auto left = pending_ + (companion_ ? companion_->pending_ : 0); left > 0) {
      return failure(Code::busy, fmt::format("{} operations of {} are pending; wait for them "
                                             "first, or abort it",
                                             left, spec_.label()));
    }
    say_goodbye(token);
    leave(token);
    return {};
  });
}

void Group::say_goodbye(Token token) {
  if (companion_ != nullptr) companion_->say_goodbye(token);
  if (health_ && spec_.size() > 1) observer_.on_destroyed(token, *this);
}

void Group::leave(Token token) {
  if (has_left_) return;
  has_left_ = true;
  if (health_) health_ = destroyed();
  if (companion_ != nullptr) companion_->leave(token);
  mesh_.leave();
  messages_.close();
  observer_.on_left(token, *this);
  context_->registry.delist(token, spec_.uid);
  if (!spec_.is_companion) context_->registry.vacate(token, spec_.slot());
}

}  // namespace xylem::runtime
