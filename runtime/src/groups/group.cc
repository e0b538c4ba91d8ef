// SPDX-License-Identifier: Apache-2.0
#include "groups/group.h"

#include "calls/plan_site.h"
#include "xylem/base/hash.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace xylem::runtime {

using execution::kMaxOperations;
using execution::Lane;

using collectives::Collective;

namespace {

constexpr std::size_t kRememberedSizes = 4;

Status no_messages() {
  return failure(Code::unsupported,
                 "messages do not go through a companion: send and receive on its communicator");
}

/// Scratch of the host that a program needs. It takes the place of scratch of the device if the
/// device has none.
std::uint64_t host_scratch_bytes(const Program& program, bool has_device_scratch) noexcept {
  return program.scratch_bytes + (has_device_scratch ? 0 : program.device_scratch_bytes);
}

}  // namespace

Group::Group(std::shared_ptr<Context> context,
             GroupObserver& observer,
             GroupSpec spec,
             collectives::CostModel model)
    : context_(std::move(context)),
      observer_(observer),
      spec_(std::move(spec)),
      plans_(site_of(*context_, spec_), std::move(model), context_->logger),
      peers_{spec_.rank, spec_.tags(), std::vector<Link>(spec_.world_ranks.size())},
      history_(spec_.uid),
      messages_(*this, spec_, peers_, *context_->wires, context_->engine, context_->headers) {}

std::shared_ptr<Group> Group::make(const std::shared_ptr<Context>& context,
                                   GroupObserver& observer,
                                   GroupSpec spec,
                                   collectives::CostModel model) {
  const std::shared_ptr<Group> group(
      new Group(context, observer, std::move(spec), std::move(model)), &Group::retire);
  context->progress.with_token([&] { group->enlist(); });
  return group;
}

/// Registers the group, which is told of deaths and verdicts from now on. Deaths and verdicts that
/// were reported before the group existed take effect here.
void Group::enlist() {
  context_->registry.enlist(uid(), weak_from_this());
  for (const std::uint32_t member : spec_.world_ranks) {
    const Status& lost = context_->failures.lost(member);
    if (!lost.is_ok()) poison(lost);
  }
  observer_.on_enlisted(*this);
}

/// Called when the last reference is gone. The group is destroyed under the token.
void Group::retire(Group* group) {
  const std::shared_ptr<Context> context = group->context_;
  Grave grave(group, [](Group* dead) { std::default_delete<Group>()(dead); });
  if (context->process.is_forked()) return;
  context->registry.bury(std::move(grave));
  if (context->process.is_closed()) return;
  if (context->progress.try_acquire()) {
    context->progress.release();
  } else {
    context->progress.notify();
    context->keeper.wake();
  }
}

Group::~Group() {
  if (companion_ != nullptr) companion_->parent_ = nullptr;
  if (context_->process.allows()) {
    say_goodbye();
    leave();
  }
  if (context_->process.is_forked()) leave_mesh_to_parent();
}

// ---- calls ----

Work Group::refused(Status why) {
  auto operation = std::make_unique<Operation>();
  operation->end(std::move(why));
  return Work(*operation.release());
}

Work Group::collective(EvenArguments& arguments) {
  Context& context = *context_;
  if (!context.process.allows()) return refused(context.process.check());
  find_memory(caller(), arguments.input, arguments.output);
  if (context.progress.try_acquire()) {
    const bool was_quiet = is_quiet();
    if (!was_quiet) launch_all(context.inbox);
    auto work = begin_known(arguments);
    finish_turn(was_quiet && (!work || work->operation_ == nullptr));
    if (work) return *std::move(work);
  }
  return submit(even_call(caller(), arguments));
}

Work Group::send(ConstBuffer buffer, std::uint32_t to, std::uint32_t tag) {
  if (!context_->process.allows()) return refused(context_->process.check());
  if (spec_.is_companion) return refused(no_messages());
  find_memory(caller(), buffer);
  if (buffer.memory.kind != MemoryKind::host) return submit(send_call(caller(), buffer, to, tag));
  if (Status right = check_send(caller(), buffer, to); !right) return refused(std::move(right));
  return message([&] { return messages_.try_send(buffer, to, tag); },
                 [&](Call& call) { set_send(call, buffer, to, tag); });
}

Work Group::recv(Buffer buffer, std::optional<std::uint32_t> from, std::uint32_t tag) {
  if (!context_->process.allows()) return refused(context_->process.check());
  if (spec_.is_companion) return refused(no_messages());
  find_memory(caller(), buffer);
  if (buffer.memory.kind != MemoryKind::host) return submit(recv_call(caller(), buffer, from, tag));
  if (Status right = check_recv(caller(), buffer, from); !right) return refused(std::move(right));
  // A receive that ends at once makes no turn of the engine. So it is tried only if the engine has
  // no operation under way that such a turn would have to move forward.
  const auto try_now = [&] {
    const bool is_idle = from && context_->engine.active() == nullptr;
    return is_idle ? messages_.try_recv(buffer, *from, tag) : std::nullopt;
  };
  return message(try_now, [&](Call& call) { set_recv(call, buffer, from, tag); });
}

/// Sends or receives a message. `try_now()` does it at once if it can. Otherwise it becomes an
/// operation, whose call `set_call` fills in.
template <typename TryNow, typename SetCall>
Work Group::message(const TryNow& try_now, const SetCall& set_call) {
  Context& context = *context_;
  const auto make = [&]() -> Operation& {
    Operation& operation = make_operation();
    set_call(operation.call);
    return operation;
  };
  if (!context.progress.try_acquire()) {
    Operation& operation = make();
    Work work(operation);
    hand_in(operation);
    return work;
  }
  const bool was_quiet = is_quiet();
  if (!was_quiet) launch_all(context.inbox);
  std::optional<Work> work = is_well() ? try_now() : std::nullopt;
  const bool is_over = work && work->operation_ == nullptr;
  if (!work) {
    Operation& operation = make();
    work = Work(operation);
    launch(operation);
  }
  finish_turn(was_quiet && is_over);
  return *std::move(work);
}

Work Group::submit(Result<Call> call) {
  return call ? submit(std::move(call).value()) : refused(call.status());
}

Work Group::submit(Call&& call) {
  Context& context = *context_;
  if (Status alive = context.process.check(); !alive) return refused(std::move(alive));
  if (spec_.is_companion && call.kind != CallKind::collective) return refused(no_messages());
  if (call.stream && runs_on_mesh(call)) return submit_on_mesh(std::move(call));
  Result<std::shared_ptr<Plan>> plan = std::shared_ptr<Plan>();
  if (call.kind == CallKind::collective) plan = plans_.plan_for(call);
  Operation& operation = make_operation();
  Work work(operation);
  operation.call = std::move(call);
  place_on_device(operation);
  if (!plan) {
    operation.unplanned = plan.status();
  } else if (*plan != nullptr) {
    operation.plan = std::move(plan).value();
  }
  reserve_memory(operation);
  if (Status taken = take_place_on_stream(operation); !taken) {
    operation.end(std::move(taken));
    operation.release();
    return work;
  }
  begin(operation);
  return work;
}

/// Launches an operation, or leaves it for the token holder.
void Group::begin(Operation& operation) {
  Context& context = *context_;
  if (!context.progress.try_acquire()) return hand_in(operation);
  launch_all(context.inbox);
  launch(operation);
  finish_turn(/*is_over=*/false);
}

/// Leaves an operation for the token holder, which is another thread.
void Group::hand_in(Operation& operation) {
  context_->progress.note_call();
  context_->inbox.submit(operation);
  context_->progress.notify();
  context_->keeper.rouse();
}

bool Group::is_quiet() const noexcept {
  return context_->inbox.is_empty() && !context_->headers.has_completed();
}

/// Gives up the token. If `is_over`, all that this thread has begun has ended, so the engine needs
/// no turn.
void Group::finish_turn(bool is_over) noexcept {
  Context& context = *context_;
  if (!is_over) {
    context.progress.note_call();
    context.headers.hand_over_completed();
    context.engine.run();
  }
  context.progress.release();
  if (!is_over) context.keeper.rouse();
}

void Group::launch_all(Inbox& inbox) noexcept {
  Operation* oldest = inbox.take_submitted();
  while (oldest != nullptr) {
    Operation& operation = *oldest;
    oldest = std::exchange(operation.lists.queue_next, nullptr);
    // launch() may end the operation, and the submitter may have dropped its handle.
    operation.acquire();
    operation.group->launch(operation);
    operation.release();
  }
  inbox.note_launched();
}

/// Gives an operation what all operations of this group have.
void Group::equip(Operation& operation) const noexcept {
  operation.source = spec_.own_world_rank();
  operation.peers = &peers_;
}

/// Takes an operation from the pool. Any thread may call this.
Operation& Group::make_operation() {
  Operation& operation = context_->operations.take(self());
  equip(operation);
  return operation;
}

/// Counts the operation as pending, and makes it known to the engine.
void Group::count_in(Operation& operation) noexcept {
  ++pending_;
  context_->keeper.add_pending();
  context_->engine.activate(operation);
}

Operation& Group::begin_operation() {
  Operation& operation = make_operation();
  count_in(operation);
  return operation;
}

// The caller must hold a reference, since the operation may end within this function.
void Group::launch(Operation& operation) noexcept {
  Engine& engine = context_->engine;
  count_in(operation);
  if (!is_well()) {
    // The call may have been given to a stream already.
    stop_mesh();
    return engine.fail(operation, has_left_ ? destroyed() : health_);
  }
  if (operation.call.kind == CallKind::collective) {
    if (running_ >= kMaxOperations || deferred_ != nullptr) {
      operation.lists.queue_next = nullptr;
      *deferred_tail_ = &operation;
      deferred_tail_ = &operation.lists.queue_next;
      return;
    }
    return start_collective(operation);
  }
  const bool any = operation.call.peer == collectives::kNone;
  const std::uint32_t first = any ? 0 : operation.call.peer;
  const std::uint32_t last = any ? size() : first + 1;
  for (std::uint32_t peer = first; peer < last; ++peer) {
    auto link = context_->wires->link(world_rank(peer));
    if (!link) return suspect(link.status());
    peers_.links[peer] = *link;
  }
  messages_.start(operation);
}

void Group::on_refusal(std::uint32_t origin, const Refusal& refusal) {
  if (const auto rank = rank_of(origin)) messages_.on_refusal(*rank, refusal);
}

void Group::send_refusal(const Refusal& refusal) { context_->control->flood(encode(refusal)); }

// ---- collectives ----

/// Begins a call for which a kept plan is found. Empty if there is no such plan, if there is no
/// memory for its scratch, or if the group cannot start a call now.
std::optional<Work> Group::begin_known(const EvenArguments& arguments) noexcept {
  Context& context = *context_;
  Engine& engine = context.engine;
  if (!is_well() || running_ >= kMaxOperations || deferred_ != nullptr) return std::nullopt;
  Plan* const plan = plans_.find(arguments);
  if (plan == nullptr) return std::nullopt;
  Operation& operation = context.operations.at_hand();
  if (!set_up_run(operation.run, *plan, arguments.input.data, arguments.output.data,
                  arguments.op.factor)) {
    return std::nullopt;
  }
  number(operation, plan->record, arguments.label);
  // A call that ends at once makes no turn of the engine. So it is tried only if the engine has no
  // operation under way that such a turn would have to move forward.
  const bool may_be_over = plan->exchange && engine.active() == nullptr && health_;
  if (may_be_over && engine.try_start(operation, *plan->exchange)) {
    return Work(spec_.own_world_rank());
  }
  context.operations.keep_at_hand(self());
  set_even(operation.call, plan->record, arguments);
  operation.plan = plan->shared_from_this();
  equip(operation);
  Work work(operation);
  count_in(operation);
  ++running_;
  if (health_) {
    engine.start(operation);
  } else {  // The call disagrees with what another rank has published.
    engine.fail(operation, health_);
  }
  return work;
}

/// Begins a collective that has a plan. If planning failed, the group fails on all ranks.
void Group::start_collective(Operation& operation) {
  ++running_;
  const Call& call = operation.call;
  number(operation, record_of(call), call.label);
  if (call.uneven && call.collective == Collective::all_to_all) {
    sent_counts_.emplace_front(operation.sequence, call.input_counts);
    if (sent_counts_.size() > kRememberedSizes) sent_counts_.pop_back();
  }
  if (!health_) return;  // The call disagrees with what another rank has published.
  trace_token(TokenEvent::prepares);
  Status ready = prepare(operation);
  trace_token(TokenEvent::prepared);
  if (!ready) {
    const std::uint32_t self = spec_.own_world_rank();
    const bool wire = ready.code() == Code::link_lost || ready.code() == Code::peer_lost;
    std::string what = fmt::format("rank {} cannot take part in {}: {}", self,
                                   name_of_call(operation.sequence), ready.message());
    if (wire) return suspect(failure(ready.code(), std::move(what), self));
    return announce(ready.code(), self, std::move(what));
  }
  context_->engine.start(operation);
}

/// Gives a call its number and adds it to the history hash. This poisons the group if another rank
/// has published a different call with this number.
void Group::number(Execution& execution, const CallRecord& call, std::uint64_t label) {
  CallRecord& record = records_[sequence_ % kRecords];
  if (sequence_ >= kRecords) {
    if (histories_.empty()) histories_.resize(kHistories);
    histories_[record.sequence % kHistories] = record.history;
  }
  record = call;
  if (label != 0) {
    record.label = label;
    record.fingerprint = combine(record.fingerprint, label);
  }
  execution.sequence = record.sequence = sequence_++;
  execution.fingerprint = history_ = record.history = combine(history_, record.fingerprint);
  observer_.on_call(*this, record);
}

std::string Group::name_of_call(std::uint64_t sequence) const {
  if (is_of_start(sequence)) return "a call of the start";
  return fmt::format("call {}", sequence - first_user_call_ + 1);
}

std::optional<std::uint64_t> Group::history_at(std::uint64_t sequence) const noexcept {
  if (sequence >= sequence_) return std::nullopt;
  if (sequence + kRecords >= sequence_) return records_[sequence % kRecords].history;
  if (sequence + kRecords + kHistories < sequence_) return std::nullopt;
  return histories_[sequence % kHistories];
}

std::optional<std::uint64_t> Group::sent_to(std::uint64_t sequence,
                                            std::uint32_t rank) const noexcept {
  for (const auto& [number, counts] : sent_counts_) {
    if (number == sequence) return counts[rank];
  }
  return std::nullopt;
}

Status Group::prepare(Operation& operation) {
  if (operation.plan == nullptr) return operation.unplanned;
  Plan& plan = *operation.plan;
  XYLEM_TRY(connect(plan));
  plans_.note_use(operation.plan);
  const Call& call = operation.call;
  if (set_up_run(operation.run, plan, call.input, call.output, call.op.factor)) return {};
  return failure(Code::exhausted,
                 fmt::format("no memory for {} bytes of scratch", plan.program->scratch_bytes));
}

Status Group::connect(Plan& plan) {
  if (plan.is_connected) return {};
  for (const Lane& lane : plan.program->lanes) {
    XYLEM_TRY(peers_.links[lane.peer], context_->wires->link(world_rank(lane.peer)));
  }
  if (plan.exchange && !plan.exchange->connect(peers_)) plan.exchange.reset();
  plan.is_connected = true;
  return {};
}

/// Gives a program the addresses of its buffers. False if its scratch cannot be allocated.
bool Group::set_up_run(
    Run& run, const Plan& plan, const void* input, void* output, double factor) noexcept {
  const Program& program = *plan.program;
  run.program = &program;
  // No plan writes to `input`, as verify() proves. So nothing is written through this cast.
  run.base[0] = static_cast<std::byte*>(const_cast<void*>(input));
  run.base[1] = static_cast<std::byte*>(output);
  execution::Compute* const device = run.device.compute;
  run.factor = factor;
  constexpr int kScratch = static_cast<int>(collectives::Buffer::scratch);
  if (device == nullptr) {
    run.base[kScratch] = run.scratch.reserve(program.scratch_bytes, device);
    return run.base[kScratch] != nullptr || program.scratch_bytes == 0;
  }
  std::byte* on_device = nullptr;
  if (program.device_scratch_bytes > 0) {
    on_device = run.device_scratch.reserved(program.device_scratch_bytes, device);
  }
  const std::uint64_t on_host = host_scratch_bytes(program, on_device != nullptr);
  run.base[kScratch] = run.base[execution::kDeviceScratch] = run.scratch.reserved(on_host, device);
  if (on_device != nullptr) {
    run.base[execution::kDeviceScratch] = on_device - program.scratch_bytes;
    run.device.memory[execution::kDeviceScratch] = run.device.memory[0];
  }
  return run.base[kScratch] != nullptr || on_host == 0;
}

/// If the buffers are on a device, lets that device compute the operation.
void Group::place_on_device(Operation& operation) const {
  const Call& call = operation.call;
  if (call.memory.kind == MemoryKind::host) return;
  auto& placed = operation.run.device;
  placed.compute = context_->devices.of(call.memory).value();  // The call was checked.
  for (const collectives::Buffer buffer :
       {collectives::Buffer::input, collectives::Buffer::output}) {
    placed.memory[static_cast<int>(buffer)] = call.memory;
  }
}

/// Allocates scratch without the token, since the system takes long to allocate and free large
/// memory, and a device's driver may wait for the device. Who needs the memory reports that there
/// is none.
void Group::reserve_memory(Operation& operation) const {
  Run& run = operation.run;
  if (operation.plan != nullptr) {
    const Program& program = *operation.plan->program;
    const bool has_device_scratch =
        run.device.compute != nullptr && program.device_scratch_bytes > 0 &&
        run.device_scratch.reserve(program.device_scratch_bytes, run.device.compute) != nullptr;
    run.scratch.reserve(host_scratch_bytes(program, has_device_scratch), run.device.compute);
  } else if (operation.call.kind != CallKind::collective &&
             messages_.is_staged(operation.call, run.device)) {
    run.staged.reserve(operation.call.count * size_of(operation.call.type), run.device.compute);
  }
}

/// Lets the operation wait for what the stream of the call has been given, and the stream for the
/// operation if the call says so. Called by the thread that makes the call, without the token,
/// since the driver may wait for its device; and after everything else for which the driver might
/// wait for the stream.
Status Group::take_place_on_stream(Operation& operation) {
  if (!operation.call.stream) return {};
  auto& placed = operation.run.device;
  void* const stream = operation.call.stream->handle;
  XYLEM_TRY(placed.gate, placed.compute->gate_after(stream));
  if (!operation.call.holds_stream) return {};
  auto end = placed.compute->gate_before(stream);
  if (end) {
    placed.end = *end;
  } else {
    placed.compute->forget(std::exchange(placed.gate, {}));
  }
  return end.status();
}

void Group::on_ended(Operation& operation) {
  if (operation.mesh != nullptr) operation.mesh->on_ended();
  if (operation.call.kind != CallKind::collective) {
    messages_.forget(operation);
  } else if (running_ > 0) {
    --running_;
  }
  --pending_;
  context_->keeper.remove_pending();
  start_deferred();
}

void Group::start_deferred() {
  // The caller further up the stack is in the loop below, and goes on with it.
  if (is_starting_) return;
  is_starting_ = true;
  while (health_ && deferred_ != nullptr && running_ < kMaxOperations) {
    Operation& next = *deferred_;
    deferred_ = next.lists.queue_next;
    if (deferred_ == nullptr) deferred_tail_ = &deferred_;
    next.acquire();  // start_collective() may end the operation.
    start_collective(next);
    next.release();
  }
  is_starting_ = false;
}

Result<PlanInfo> Group::explain(const collectives::Shape& shape,
                                std::uint64_t count,
                                DataType type) {
  if (Status alive = context_->process.check(); !alive) return alive;
  return plans_.explain(shape, count, type);
}

}  // namespace xylem::runtime
