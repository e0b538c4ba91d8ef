// SPDX-License-Identifier: Apache-2.0
#include "groups/collectives.h"

#include "calls/operands.h"
#include "calls/work_access.h"
#include "progress/token_trace.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace xylem::runtime {

using execution::Lane;

Collectives::Collectives(GroupControl& group,
                         const GroupSpec& spec,
                         Context& context,
                         execution::Peers& peers,
                         Plans& plans)
    : group_(group),
      spec_(spec),
      context_(context),
      peers_(peers),
      plans_(plans),
      history_(spec.uid) {}

std::optional<Work> Collectives::try_start(Token token, const EvenArguments& arguments) noexcept {
  Engine& engine = context_.scheduler.engine(token);
  const Status& health = group_.health();
  if (!health || !admission_.is_open()) return std::nullopt;
  Plan* const plan = plans_.find(token, arguments);
  if (plan == nullptr) return std::nullopt;
  Operation& operation = context_.operations.spare(token);
  if (!set_up_run(operation.run, *plan->program, arguments.input.data, arguments.output.data,
                  arguments.op.factor)) {
    return std::nullopt;
  }
  number(operation, plan->record, arguments.label);
  // A call that completes here runs no round of the engine. So this is tried only if no other
  // execution is active, which could need a round.
  const bool may_be_over = plan->exchange && engine.active() == nullptr && health;
  if (may_be_over && engine.try_start(operation, *plan->exchange)) {
    return WorkAccess::ended(spec_.own_world_rank());
  }
  group_.adopt_spare();
  set_even(operation.call, plan->record, arguments);
  operation.plan = plan->shared_from_this();
  Work work = WorkAccess::of(operation);
  admission_.enter();
  if (health) {
    engine.start(operation);
  } else {  // The call disagrees with what another rank has published.
    engine.fail(operation, health);
  }
  return work;
}

void Collectives::launch(Token token, Operation& operation) {
  if (admission_.is_open()) return start(token, operation);
  admission_.defer(operation);
}

/// Starts a collective. If it has no plan, or if the plan cannot be carried out, the group fails on
/// all ranks.
void Collectives::start(Token token, Operation& operation) {
  admission_.enter();
  const Call& call = operation.call;
  // number() compares the counts with what other ranks have published.
  if (call.has_private_counts())
    history_.remember_counts(history_.next_sequence(), call.input_counts);
  number(operation, record_of(call), call.label);
  if (!group_.health()) return;  // The call disagrees with what another rank has published.
  trace_token(TokenEvent::prepares);
  Status ready = prepare(token, operation);
  trace_token(TokenEvent::prepared);
  if (ready) return context_.scheduler.engine(token).start(operation);
  const std::uint32_t self = spec_.own_world_rank();
  const bool is_wire = ready.code() == Code::link_lost || ready.code() == Code::peer_lost;
  std::string what = fmt::format("rank {} cannot take part in {}: {}", self,
                                 history_.name_of(operation.sequence), ready.message());
  if (is_wire) return group_.suspect(failure(ready.code(), std::move(what), self));
  group_.announce(ready.code(), self, std::move(what));
}

/// Sets the number of a call, and the hash of all calls so far. Poisons the group if another rank
/// has published a different call with this number.
void Collectives::number(Execution& execution, const CallRecord& call, std::uint64_t label) {
  const CallRecord& record = history_.add(call, label);
  execution.sequence = record.sequence;
  execution.fingerprint = record.history;
  group_.on_call(record);
}

Status Collectives::prepare(Token token, Operation& operation) {
  if (operation.plan == nullptr) return operation.unplanned;
  Plan& plan = *operation.plan;
  XYLEM_TRY(connect(token, plan));
  plans_.note_use(token, operation.plan);
  const Call& call = operation.call;
  if (set_up_run(operation.run, *plan.program, call.input, call.output, call.op.factor)) return {};
  return failure(Code::exhausted, fmt::format("no memory for {} bytes of scratch",
                                              plan.program->host_scratch_bytes()));
}

Status Collectives::connect(Token token, Plan& plan) {
  if (plan.is_connected) return {};
  for (const Lane& lane : plan.program->lanes) {
    XYLEM_TRY(peers_.links[lane.peer], context_.wires->link(token, spec_.world_ranks[lane.peer]));
  }
  if (plan.exchange && !plan.exchange->connect(peers_)) plan.exchange.reset();
  plan.is_connected = true;
  return {};
}

void Collectives::on_ended(Token token) {
  admission_.leave();
  if (is_starting_) return;  // An outer on_ended() runs the loop below.
  is_starting_ = true;
  while (group_.health()) {
    Operation* const next = admission_.next();
    if (next == nullptr) break;
    next->acquire();  // start() may end the operation.
    start(token, *next);
    next->release();
  }
  is_starting_ = false;
}

}  // namespace xylem::runtime
