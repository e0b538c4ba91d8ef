// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include "kernels/reduce.h"
#include "xylem/base/hash.h"
#include "xylem/collectives/planner.h"
#include "xylem/collectives/staging.h"
#include "xylem/execution/tag.h"

#include <fmt/format.h>

#include <algorithm>

namespace xylem::runtime {

using execution::compile;
using execution::kMaxOperations;
using execution::Lane;
using execution::ProgramOptions;

using collectives::Collective;
using collectives::Shape;

namespace {

constexpr std::size_t kCachedPrograms = 64;
constexpr std::size_t kRememberedSizes = 4;
/// What an all_to_all_v is taken for when a plan is chosen: its sizes are local, so they must not
/// decide.
constexpr std::uint64_t kUnknownBytes = 64 * 1024;

std::uint64_t fingerprint_of(const Call& call) noexcept {
  // Each call pays for this: what is small shares a word.
  constexpr int kByte = 8;
  std::uint64_t hash = call.root;
  for (const auto part :
       {static_cast<std::uint64_t>(call.collective), std::uint64_t{call.uneven},
        static_cast<std::uint64_t>(call.type), static_cast<std::uint64_t>(call.op.op)}) {
    hash = hash << kByte | part;
  }
  if (!call.uneven) return combine(hash, call.count);
  if (call.collective == Collective::all_to_all) return hash;
  const auto& counts = call.input_counts.empty() ? call.output_counts : call.input_counts;
  for (const std::uint64_t count : counts) hash = combine(hash, count);
  return hash;
}

/// Elements by which the plan is chosen: alike on all ranks.
std::uint64_t agreed_bytes(const Call& call) noexcept {
  if (!call.uneven) return call.count * size_of(call.type);
  if (call.collective == Collective::all_to_all) return kUnknownBytes;
  const auto& counts = call.input_counts.empty() ? call.output_counts : call.input_counts;
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts) sum += count;
  return sum / std::max<std::uint64_t>(1, counts.size()) * size_of(call.type);
}

bool same_call(const CallRecord& a, const Call& call) noexcept {
  return a.collective == call.collective && a.type == call.type && a.op == call.op.op &&
         a.root == call.root && a.count == call.count;
}

/// The name that XYLEM_ALGORITHM gives for a collective: "ring", or
/// "all_reduce=ring,all_gather=bruck".
std::string_view forced_algorithm(std::string_view setting, Collective collective) noexcept {
  std::string_view general;
  while (!setting.empty()) {
    const auto comma = setting.find(',');
    const std::string_view item = setting.substr(0, comma);
    setting = comma == std::string_view::npos ? std::string_view() : setting.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      // A bare name speaks for the collectives that have such a planner.
      if (collectives::find_planner(collective, item) != nullptr) general = item;
    } else if (item.substr(0, equals) == name(collective)) {
      return item.substr(equals + 1);
    }
  }
  return general;
}

Status destroyed() {
  return failure(Code::invalid_argument, "the communicator was destroyed; make another");
}

std::uint64_t slice_for(const Context& context, std::span<const std::uint32_t> world_ranks) {
  const std::uint64_t wanted = context.config().slice.value;
  const std::uint64_t fits = context.wires->view_bytes(world_ranks);
  return fits == 0 ? wanted : std::min(wanted, fits);
}

}  // namespace

Group::Group(std::shared_ptr<Context> context,
             GroupObserver& observer,
             GroupSpec spec,
             collectives::CostModel model)
    : context_(std::move(context)),
      observer_(observer),
      spec_(std::move(spec)),
      slice_bytes_(slice_for(*context_, spec_.world_ranks)),
      chooser_({}),
      peers_{spec_.rank, spec_.slot, std::vector<Link>(spec_.world_ranks.size())},
      history_(spec_.uid),
      messages_(*this, spec_, peers_, context_->engine, context_->headers) {
  set_model(std::move(model));
}

void Group::set_model(collectives::CostModel model) {
  model.slice_bytes = slice_bytes_;
  chooser_ = collectives::Chooser(std::move(model));
  // They follow from the model. Which of them are still here differs from rank to rank, so one that
  // stayed could be another plan than the one that another rank makes anew.
  programs_.clear();
}

std::shared_ptr<Group> Group::make(const std::shared_ptr<Context>& context,
                                   GroupObserver& observer,
                                   GroupSpec spec,
                                   collectives::CostModel model) {
  const std::shared_ptr<Group> group(
      new Group(context, observer, std::move(spec), std::move(model)), &Group::retire);
  context->progress.with_token([&] { group->enlist(); });
  return group;
}

/// From now on the group hears of deaths and verdicts, and of those that came before it.
void Group::enlist() {
  context_->registry.enlist(uid(), weak_from_this());
  for (const std::uint32_t member : spec_.world_ranks) {
    const Status& lost = context_->failures.lost(member);
    if (!lost.is_ok()) poison(lost);
  }
  observer_.on_enlisted(*this);
}

/// Nobody refers to it any more: it ends under the token.
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
  if (context_->process.allows()) leave();
}

Work Group::refused(Status why) {
  auto operation = std::make_unique<Operation>();
  operation->end(std::move(why));
  return Work(*operation.release());
}

Work Group::submit(Call&& call) {
  if (Status alive = context_->process.check(); !alive) return refused(std::move(alive));
  Operation& operation = take_operation(std::move(call));
  Work work(operation);
  Progress& progress = context_->progress;
  if (progress.try_acquire()) {
    launch_all(context_->inbox.take_submitted());
    launch(operation);
    context_->headers.hand_over_completed();
    context_->engine.run();
    progress.release();
  } else {
    context_->inbox.submit(operation);
    progress.notify();
  }
  return work;
}

void Group::launch_all(Operation* oldest) {
  while (oldest != nullptr) {
    Operation& operation = *oldest;
    oldest = std::exchange(operation.lists.queue_next, nullptr);
    operation.acquire();  // It may end within, and its submitter may have let go of it.
    operation.group->launch(operation);
    operation.release();
  }
}

Operation& Group::take_operation(Call&& call) {
  Operation& operation = context_->operations.take(shared_from_this());
  operation.call = std::move(call);
  operation.source = spec_.own_world_rank();
  operation.peers = &peers_;
  pending_.fetch_add(1, std::memory_order_relaxed);
  context_->keeper.add_pending();
  return operation;
}

// The caller holds a reference: the operation may end within.
void Group::launch(Operation& operation) {
  Engine& engine = context_->engine;
  engine.activate(operation);
  if (has_left_) return engine.fail(operation, destroyed());
  if (!health_) return engine.fail(operation, health_);
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
  place_on_device(operation);
  messages_.start(operation);
}

// ---- the short way ----

bool Group::try_enter(Company company) noexcept {
  Context& context = *context_;
  if (!context.process.allows() || !context.progress.try_acquire()) return false;
  const bool is_quiet = context.inbox.is_empty() && !context.headers.has_completed() &&
                        (company == Company::any || context.engine.active() == nullptr);
  if (!is_quiet) context.progress.release();
  return is_quiet;
}

std::optional<Work> Group::try_collective(const EvenArguments& arguments) {
  if (!try_enter(Company::none)) return std::nullopt;
  std::optional<Work> work;
  const bool is_free = is_well() && running_ < kMaxOperations && deferred_ == nullptr;
  if (const CachedProgram* known = is_free ? find_exchange(arguments) : nullptr) {
    if (known->exchange) work = run_exchange(*known, *known->exchange, arguments);
  }
  context_->progress.release();
  return work;
}

/// An exchange that was run with such arguments of late.
const Group::CachedProgram* Group::find_exchange(const EvenArguments& arguments) const noexcept {
  // So few that a miss costs little. They are not moved up: the long way does that.
  constexpr int kOfLate = 4;
  int looked = 0;
  for (const CachedProgram& cached : programs_) {
    if (cached.exchange && cached.arguments.match(arguments)) return &cached;
    if (++looked == kOfLate) break;
  }
  return nullptr;
}

/// An exchange whose arguments are right, as far as it goes at once.
std::optional<Work> Group::run_exchange(const CachedProgram& known,
                                        const Exchange& exchange,
                                        const EvenArguments& arguments) {
  Engine& engine = context_->engine;
  Run& run = engine.at_hand();
  // Planners never write `input`: verify() proves it, so the cast does not reach a write.
  run.base[0] = static_cast<std::byte*>(const_cast<void*>(arguments.input.data));
  run.base[1] = static_cast<std::byte*>(arguments.output.data);
  run.base[2] = run.scratch.reserve(known.program->scratch_bytes);
  if (run.base[2] == nullptr && known.program->scratch_bytes > 0) return std::nullopt;
  record(known.key);
  const bool has_begun = health_.is_ok();
  if (has_begun && engine.try_exchange(exchange, sequence_ - 1, history_)) {
    return Work(spec_.own_world_rank());
  }
  // Right, as they are those of an earlier call.
  Call call = even_call(caller(), arguments).value();
  Operation& operation = take_operation(std::move(call));
  ++running_;
  operation.sequence = sequence_ - 1;
  operation.fingerprint = history_;
  operation.run.kept = known.program;
  operation.run.program = known.program.get();
  Work work(operation);
  engine.activate(operation);
  if (has_begun) {
    engine.take_over(operation);
  } else {
    engine.fail(operation, health_);
  }
  return work;
}

std::optional<Work> Group::try_send(const ConstBuffer& buffer,
                                    std::uint32_t to,
                                    std::uint32_t tag) {
  // Receives are mostly under way while their peers are sent to.
  if (!try_enter(Company::any)) return std::nullopt;
  std::optional<Work> work;
  if (is_well()) work = messages_.try_send(buffer, to, tag);
  context_->progress.release();
  return work;
}

std::optional<Work> Group::try_recv(const Buffer& buffer, std::uint32_t from, std::uint32_t tag) {
  if (!try_enter(Company::none)) return std::nullopt;
  std::optional<Work> work;
  if (is_well()) work = messages_.try_recv(buffer, from, tag);
  context_->progress.release();
  return work;
}

// ---- collectives ----

void Group::start_collective(Operation& operation) {
  ++running_;
  const Call& call = operation.call;
  record({0, fingerprint_of(call), 0, call.collective, call.type, call.op.op, call.root, call.count,
          call.uneven});
  operation.sequence = sequence_ - 1;
  operation.fingerprint = history_;
  if (call.uneven && call.collective == Collective::all_to_all) {
    sent_counts_.emplace_front(operation.sequence, call.input_counts);
    if (sent_counts_.size() > kRememberedSizes) sent_counts_.pop_back();
  }
  if (!health_) return;  // The call disagrees with what another rank has published.
  if (Status ready = prepare(operation); !ready) {
    const std::uint32_t self = spec_.own_world_rank();
    const bool wire = ready.code() == Code::link_lost || ready.code() == Code::peer_lost;
    std::string what = fmt::format("rank {} cannot take part in call {}: {}", self,
                                   operation.sequence, ready.message());
    if (wire) return suspect(failure(ready.code(), std::move(what), self));
    return announce(ready.code(), self, std::move(what));
  }
  context_->engine.start(operation);
}

/// Numbers a call and folds it into the history. It may poison the group: others have published a
/// call that disagrees.
void Group::record(CallRecord call) {
  CallRecord& record = records_[sequence_ % kRecords];
  if (sequence_ >= kRecords) {
    if (histories_.empty()) histories_.resize(kHistories);
    histories_[record.sequence % kHistories] = record.history;
  }
  record = call;
  record.sequence = sequence_++;
  history_ = record.history = combine(history_, record.fingerprint);
  observer_.on_call(*this, record);
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
  XYLEM_TRY(operation.run.kept, program_for(operation));
  operation.run.program = operation.run.kept.get();
  return bind(operation);
}

Result<std::shared_ptr<const Program>> Group::program_for(const Operation& operation) {
  const Call& call = operation.call;
  if (call.uneven) return make_program(call);
  for (auto cached = programs_.begin(); cached != programs_.end(); ++cached) {
    if (!same_call(cached->key, call) || cached->variant != variant_of(call)) continue;
    if (cached != programs_.begin()) programs_.splice(programs_.begin(), programs_, cached);
    return programs_.front().program;
  }
  XYLEM_TRY(auto program, make_program(call));
  programs_.push_front({records_[operation.sequence % kRecords], variant_of(call), program,
                        KnownArguments(caller(), call), Exchange::bind(*program, peers_)});
  if (programs_.size() > kCachedPrograms) programs_.pop_back();
  return program;
}

Result<std::shared_ptr<const Program>> Group::make_program(const Call& call) {
  const Shape shape{call.collective, size(), call.root};
  const auto forced = forced_algorithm(context_->config().algorithm, call.collective);
  XYLEM_TRY(const auto choice, chooser_.choose(shape, agreed_bytes(call), forced));
  if (context_->logger.enabled(LogLevel::debug)) {
    context_->logger.debug(fmt::format("communicator {}: {} of {} bytes: {}", slot(),
                                       name(call.collective), agreed_bytes(call), choice.reason));
  }
  ProgramOptions options;
  options.counts.count = call.count;
  options.counts.element_bytes = static_cast<std::uint32_t>(size_of(call.type));
  if (call.uneven) {
    options.counts.input_counts = call.input_counts;
    options.counts.output_counts = call.output_counts;
  }
  options.slice_bytes = slice_bytes_;
  options.window = context_->config().window;
  if (reduces(call.collective)) {
    options.kernel = reduce_kernel(call.op.op, call.type);
    options.divisor = call.op.op == RedOp::avg ? size() : 1;
  }
  const Variant variant = variant_of(call);
  if (call.op.op == RedOp::premul_sum) options.scale = scale_kernel(call.type);
  options.fuses = !variant.is_on_device;
  const collectives::Staging staging{.input = variant.stages_input,
                                     .messages = variant.is_on_device && !wires_reach_devices()};
  auto plan = choice.planner->plan(choice.shape, rank());
  if (staging.input || staging.messages) plan = stage(plan, staging);
  XYLEM_TRY(auto program, compile(plan, options));
  XYLEM_TRY(connect(*program));
  return program;
}

Status Group::connect(const Program& program) {
  for (const Lane& lane : program.lanes) {
    XYLEM_TRY(peers_.links[lane.peer], context_->wires->link(world_rank(lane.peer)));
  }
  return {};
}

Group::Variant Group::variant_of(const Call& call) noexcept {
  const bool is_scaled = call.op.op == RedOp::premul_sum;
  const bool is_overwritten =
      call.collective == Collective::all_to_all && call.input == call.output;
  return {.is_on_device = call.memory.kind != MemoryKind::host,
          .stages_input = is_scaled || is_overwritten};
}

Status Group::bind(Operation& operation) {
  auto& run = operation.run;
  const Call& call = operation.call;
  const Program& program = *run.program;
  // Planners never write `input`: verify() proves it, so the cast does not reach a write.
  run.base[0] = static_cast<std::byte*>(const_cast<void*>(call.input));
  run.base[1] = static_cast<std::byte*>(call.output);
  run.base[2] = run.scratch.reserve(program.scratch_bytes);
  run.factor = call.op.factor;
  place_on_device(operation);
  if (run.base[2] == nullptr && program.scratch_bytes > 0) {
    return failure(Code::exhausted,
                   fmt::format("no memory for {} bytes of scratch", program.scratch_bytes));
  }
  return {};
}

/// Where the buffers are on a device, it computes.
void Group::place_on_device(Operation& operation) {
  const Memory memory = operation.call.memory;
  if (memory.kind == MemoryKind::host) return;
  const ComputeDevice& device = *context_->devices.find(memory);  // The call was checked.
  auto& placed = operation.run.device;
  placed.compute = device.compute.get();
  for (const collectives::Buffer buffer :
       {collectives::Buffer::input, collectives::Buffer::output}) {
    placed.memory[static_cast<int>(buffer)] = memory;
  }
  if (device.make_gate) placed.gate = device.make_gate();
}

/// Whether messages go directly from and to the memory of devices.
bool Group::wires_reach_devices() const noexcept {
  return std::ranges::all_of(context_->wires->all(), [](const Wire& wire) {
    return wire.transport == nullptr || wire.transport->capabilities().cuda;
  });
}

void Group::on_ended(Operation& operation) {
  if (operation.call.kind != CallKind::collective) {
    messages_.forget(operation);
  } else if (running_ > 0) {
    --running_;
  }
  pending_.fetch_sub(1, std::memory_order_release);
  start_deferred();
}

void Group::start_deferred() {
  if (is_starting_) return;  // The loop below, further down the stack, goes on.
  is_starting_ = true;
  while (health_ && deferred_ != nullptr && running_ < kMaxOperations) {
    Operation& next = *deferred_;
    deferred_ = next.lists.queue_next;
    if (deferred_ == nullptr) deferred_tail_ = &deferred_;
    next.acquire();  // It may end within.
    start_collective(next);
    next.release();
  }
  is_starting_ = false;
}

void Group::poison(const Status& why) {
  if (!is_well()) return;
  health_ = why;
  deferred_ = nullptr;
  deferred_tail_ = &deferred_;
  Engine& engine = context_->engine;
  for (Operation* operation = as_operation(engine.active()); operation != nullptr;) {
    Operation* next = as_operation(operation->active_next);
    if (operation->group.get() == this) engine.fail(*operation, why);
    operation = next;
  }
  context_->registry.on_poisoned(slot());
  context_->keeper.wake();
}

void Group::announce(Code code, std::optional<std::uint32_t> culprit, std::string message) {
  if (!is_well()) return;
  if (code != Code::cancelled) context_->logger.error(message);
  context_->control->flood(encode(Verdict{uid(), code, culprit, message}));
  poison(failure(code, std::move(message), culprit));
}

void Group::suspect(Status why) {
  context_->failures.suspect(weak_from_this(), std::move(why), Suspicion::Leaver::counts);
}

Result<collectives::Choice> Group::choose(const Shape& shape, std::uint64_t count, DataType type) {
  if (Status alive = context_->process.check(); !alive) return alive;
  return context_->progress.with_token([&] {
    const auto forced = forced_algorithm(context_->config().algorithm, shape.collective);
    return chooser_.choose(shape, count * size_of(type), forced);
  });
}

Status Group::destroy() {
  if (context_->process.is_forked()) return context_->process.check();
  return context_->progress.with_token([this]() -> Status {
    if (const auto left = pending(); left > 0) {
      return failure(Code::busy, fmt::format("{} operations of communicator {} are pending; wait "
                                             "for them first, or abort it",
                                             left, slot()));
    }
    leave();
    return {};
  });
}

Status Group::abort(std::string_view why) {
  if (Status alive = context_->process.check(); !alive) return alive;
  return context_->progress.with_token([&]() -> Status {
    if (has_left_) return destroyed();
    announce(
        Code::cancelled, std::nullopt,
        fmt::format("rank {} aborted communicator {}: {}", spec_.own_world_rank(), slot(), why));
    return {};
  });
}

void Group::close() {
  context_->progress.with_token([this] { leave(); });
}

void Group::leave() {
  if (has_left_) return;
  has_left_ = true;
  messages_.close();
  observer_.on_left(*this);
  context_->registry.delist(uid(), slot());
}

}  // namespace xylem::runtime
