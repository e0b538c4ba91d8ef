// SPDX-License-Identifier: Apache-2.0
#include "failure/watch.h"

#include "calls/unfinished_message.h"
#include "failure/mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace xylem::runtime {

using execution::Lane;
namespace {

using collectives::kNone;

/// The message that this rank has left a group.
Situation goodbye_to(std::uint64_t group) {
  Situation goodbye;
  goodbye.group = group;
  goodbye.state = Situation::State::left;
  return goodbye;
}

void judge(const Logger& logger, GroupControl& group, const Verdict& verdict) {
  // An abort is the user's own decision, so it is not logged as an error.
  if (group.health() && verdict.code != Code::cancelled) logger.error(verdict.message);
  group.poison(failure(verdict.code, verdict.message, verdict.culprit));
}

}  // namespace

Watch::Watch(Context& context) : context_(context), rolls_(context.rank()) {}

void Watch::tick(Token /*token*/, Clock::time_point now) {
  rolls_.tick(now);
  find_oldest();
  for (Operation* operation = as_operation(engine().active()); operation != nullptr;) {
    Operation* next = as_operation(operation->active_next);
    operation->acquire();
    if (next != nullptr) next->acquire();  // check() may end other operations.
    if (!operation->ended()) check(*operation, now);
    operation->release();
    const bool gone = next != nullptr && next->ended();
    if (next != nullptr) next->release();
    operation = gone ? nullptr : next;  // The next tick checks the remaining operations.
  }
}

void Watch::check(Operation& operation, Clock::time_point now) {
  if (!operation.health) return look_at_failing(operation, now);
  Group& group = group_of(operation);
  if (operation.watched.begun == Clock::time_point{})
    operation.watched.begun = operation.watched.stalled_since = now;
  if (operation.advanced != operation.watched.advanced_at_tick) {
    operation.watched.advanced_at_tick = operation.advanced;
    operation.watched.stalled_since = now;
    operation.watched.reported = false;
  }
  const auto limit = operation.timeout().value_or(group.spec().timeout);
  come_to_limit(group, operation, limit, now);
  if (now - operation.watched.begun >= limit) return;
  // A later call waits for an earlier call more often than for its own messages. So a call's stall
  // is counted from the time at which it becomes the oldest call, and a group publishes one
  // question at a time.
  if (operation.call.kind == CallKind::collective && !operation.watched.is_oldest &&
      is_oldest(operation)) {
    operation.watched.is_oldest = true;
    operation.watched.stalled_since = now;
  }
  const auto stalled = now - operation.watched.stalled_since;
  if (operation.call.kind != CallKind::collective) {
    if (stalled >= kPartnerLeftLimit) look_at_message(group, operation, now);
    return;
  }
  if (operation.run.program == nullptr) return;  // Deferred: earlier calls report their stall.
  if (stalled >= kStall && !operation.watched.reported && operation.watched.is_oldest) {
    operation.watched.reported = true;
    ask(group, operation.sequence);
  }
  if (operation.watched.is_oldest && !operation.watched.warned)
    warn_of_stall(group, operation, stalled, now);
  if (stalled < kPartnerLeftLimit) return;
  // Ranks whose numbers of elements differ may take part in different numbers of rounds.
  if (const Status mesh = operation.check_mesh(); !mesh) {
    (void)group.on_compute_error(context_.progress.assert_held(), operation, mesh);
    return;
  }
  look_for_leavers(group, operation, now);
}

void Watch::find_oldest() {
  oldest_.clear();
  for (const Execution* execution = engine().active(); execution != nullptr;
       execution = execution->active_next) {
    const auto* op = static_cast<const Operation*>(execution);
    if (op->call.kind != CallKind::collective || op->run.program == nullptr) continue;
    const auto [entry, is_first] = oldest_.try_emplace(op->owner.get(), op->sequence);
    if (!is_first) entry->second = std::min(entry->second, op->sequence);
  }
}

bool Watch::is_oldest(const Operation& operation) const {
  const auto oldest = oldest_.find(operation.owner.get());
  return oldest != oldest_.end() && oldest->second == operation.sequence;
}

/// Asks the other ranks to compare their calls. One question about a call is enough, whoever asks:
/// every rank compares the call with its own, and differs from the asking rank or from nobody.
void Watch::ask(Group& group, std::uint64_t sequence) {
  ReceivedSituations& received = received_[group.spec().uid];
  received.advance(sequence);
  if (!received.asked.insert(sequence).second) return answer_with_size(group, sequence);
  Situation own_situation = situation(group, sequence);
  own_situation.is_question = true;
  flood(own_situation);
}

/// Warns of a long stall once a roll call shows who is late.
void Watch::warn_of_stall(Group& group,
                          Operation& operation,
                          std::chrono::nanoseconds stalled,
                          Clock::time_point now) {
  const RollCall* const roll = call_roll(group, operation, operation.watched.stall_roll, stalled,
                                         context_.config().stall_report, now);
  if (roll == nullptr) return;
  operation.watched.warned = true;
  context_.logger.warn(
      fmt::format("stalled: {}", explain(group, operation, participation_of(group, *roll))));
}

/// The number of the call that a roll call for this operation is about.
std::uint64_t Watch::call_of(Group& group, const Operation& operation) const {
  const bool has_number =
      operation.call.kind == CallKind::collective && operation.run.program != nullptr;
  return has_number ? operation.sequence : history(group).next_sequence();
}

/// Announces that an operation has timed out, once a roll call shows which rank is to blame.
void Watch::come_to_limit(Group& group,
                          Operation& operation,
                          std::chrono::nanoseconds limit,
                          Clock::time_point now) {
  const RollCall* const roll = call_roll(group, operation, operation.watched.roll,
                                         now - operation.watched.begun, limit, now);
  if (roll != nullptr) time_out(group, operation, *roll, limit);
}

/// When `passed` nears the limit, starts a roll call, or joins that of another rank, so that the
/// ranks have time to answer. Returns the roll call if the limit has passed and the roll call is
/// over; null until then. `id` keeps the roll call between the ticks.
const RollCall* Watch::call_roll(Group& group,
                                 const Operation& operation,
                                 RollCallId& id,
                                 std::chrono::nanoseconds passed,
                                 std::chrono::nanoseconds limit,
                                 Clock::time_point now) {
  if (passed < std::max<std::chrono::nanoseconds>(limit - kRollCall, limit / 2)) {
    id = {};  // The stall has ended, or the user has extended the time limit.
    return nullptr;
  }
  const RollCall* roll = rolls_.find(id);
  // There is no roll call yet, or this rank was stopped for so long that it was removed.
  if (roll == nullptr) {
    const std::uint64_t sequence = call_of(group, operation);
    roll = rolls_.recent(group.spec().uid, sequence, now);
    if (roll == nullptr) {
      roll = &rolls_.call(group.spec().uid, sequence, now);
      Situation own_situation = situation(group, sequence);
      own_situation.roll_call = roll->id.number;
      flood(own_situation);
    }
    id = roll->id;
  }
  return passed >= limit && is_over(group, *roll) ? roll : nullptr;
}

bool Watch::is_over(Group& group, const RollCall& roll) const {
  std::size_t missing = 0;
  for (std::uint32_t rank = 0; rank < group.spec().size(); ++rank) {
    const std::uint32_t world = group.spec().world_ranks[rank];
    const bool may_answer = world != context_.rank() && !context_.failures.has_left(token(), world);
    if (may_answer && !roll.answers.contains(world)) ++missing;
  }
  return roll.is_over(missing);
}

void Watch::time_out(Group& group,
                     const Operation& operation,
                     const RollCall& roll,
                     std::chrono::nanoseconds longest) {
  const std::string limit = format_duration(longest);
  std::string text;
  const Participation participation = participation_of(group, roll);
  std::optional<std::uint32_t> culprit = participation.culprit();
  if (operation.call.kind != CallKind::collective) {
    const bool has_peer = operation.call.peer != kNone;
    // Only the sender and the receiver take part in a message. So a rank that has made no call is
    // not to blame, in contrast to a collective.
    if (participation.silent.size() != 1) {
      culprit.reset();
      if (has_peer) culprit = group.spec().world_ranks[operation.call.peer];
      else culprit = participation.only_leaver();
    }
    text = describe_unfinished(operation, longest);
    if (participation.silent.size() == 1) text += participation.describe_silent();
    text += participation.describe_leavers();
  } else if (operation.run.program == nullptr) {
    text =
        fmt::format("rank {}: a {} waited {} for earlier calls of {} and did not start",
                    context_.rank(), name(operation.call.collective), limit, group.spec().label());
    if (participation.silent.size() != 1) culprit.reset();
  } else {
    text = explain(group, operation, participation);
  }
  control(group).announce(Code::timed_out, culprit, std::move(text));
}

Clock::time_point Watch::left_at(Group& group, std::uint32_t world_rank) const {
  const Clock::time_point left_job = context_.failures.left_at(token(), world_rank);
  const auto of_group = goodbyes_.find(group.spec().uid);
  if (of_group == goodbyes_.end()) return left_job;
  const auto goodbye = of_group->second.find(world_rank);
  return goodbye == of_group->second.end() ? left_job : std::min(left_job, goodbye->second);
}

std::string_view Watch::left_by(std::uint32_t world_rank) const {
  return context_.failures.has_left(token(), world_rank) ? "the job" : "the communicator";
}

/// Checks a stalled send or receive. If all its possible partners have left, fails the group, since
/// no partner will match it. Messages that were sent before a partner left have had
/// kPartnerLeftLimit to arrive.
void Watch::look_at_message(Group& group, const Operation& operation, Clock::time_point now) {
  const std::uint32_t peer = operation.call.peer;
  std::optional<std::uint32_t> gone;
  for (std::uint32_t rank = 0; rank < group.spec().size(); ++rank) {
    if (peer != kNone ? rank != peer : rank == group.spec().rank) continue;
    if (now - kPartnerLeftLimit < left_at(group, group.spec().world_ranks[rank])) return;
    gone = group.spec().world_ranks[rank];
  }
  if (!gone) return;
  const bool is_send = operation.call.kind == CallKind::send;
  control(group).announce(
      Code::peer_lost, gone,
      fmt::format("rank {} left {} before it {} what rank {} {} with tag {}", *gone, left_by(*gone),
                  is_send ? "received" : "sent", context_.rank(), is_send ? "sends" : "receives",
                  operation.call.tag));
}

/// Announces `peer_lost` if a rank has left before it completed its part: a message to or from this
/// rank is under way, or waits to be sent to it. A receive that is not posted yet does not count,
/// since the rank may have sent its message before it left.
void Watch::look_for_leavers(Group& group, const Operation& operation, Clock::time_point now) {
  const auto& program = *operation.run.program;
  const auto announce_if_left = [&](const Lane& lane) {
    const std::uint32_t world = group.spec().world_ranks[lane.peer];
    if (now - kPartnerLeftLimit < left_at(group, world)) return false;
    control(group).announce(Code::peer_lost, world,
                            fmt::format("rank {} left {} before it took its part: {}", world,
                                        left_by(world), explain(group, operation, {})));
    return true;
  };
  for (const Message* message = operation.messages; message != nullptr; message = message->next) {
    if (announce_if_left(program.lanes[program.steps[message->step].lane])) return;
  }
  for (std::uint32_t lane = 0; lane < program.lanes.size(); ++lane) {
    const bool is_unsent = program.lanes[lane].outgoing && Engine::has_more(operation, lane);
    if (is_unsent && announce_if_left(program.lanes[lane])) return;
  }
}

void Watch::look_at_failing(Operation& operation, Clock::time_point now) {
  const auto failing = now - operation.failed_at;
  if (failing < kQuarantine) return;
  // A transport still uses messages of the operation. So the memory of the operation is never
  // reused, and the error says that the user must not free the buffers.
  operation.acquire();
  engine().finish(operation, Error{.code = operation.health.code(),
                                   .message = fmt::format(
                                       "{} (and {} messages could not be withdrawn: do not free or "
                                       "reuse the buffers)",
                                       operation.health.message(), operation.outstanding),
                                   .peer = operation.health.peer(),
                                   .holds_buffers = true});
}

Situation Watch::situation(Group& group, std::uint64_t sequence) const {
  Situation situation;
  situation.group = group.spec().uid;
  situation.sequence = sequence;
  const std::uint64_t next = history(group).next_sequence();
  // The records of the calls around call `sequence`, or of the last calls if this rank has not made
  // that call.
  const std::uint64_t end = std::min(next, sequence + Situation::kMostRecords / 2);
  const std::uint64_t first = end > Situation::kMostRecords ? end - Situation::kMostRecords : 0;
  const std::uint64_t known = next > CallHistory::kRecords ? next - CallHistory::kRecords : 0;
  for (std::uint64_t s = std::max(first, known); s < end; ++s)
    situation.records.push_back(history(group).record(s));
  if (next <= sequence) return situation;
  situation.state = Situation::State::done;
  for (const Execution* execution = engine().active(); execution != nullptr;
       execution = execution->active_next) {
    const auto* op = static_cast<const Operation*>(execution);
    if (op->owner.get() != &group || op->call.kind != CallKind::collective ||
        op->sequence != sequence || op->run.program == nullptr) {
      continue;
    }
    situation.state = Situation::State::waiting;
    for (const Message* message = op->messages; message != nullptr; message = message->next) {
      if (!message->incoming || message->step == execution::kPointToPoint) continue;
      const auto& step = op->run.program->steps[message->step];
      situation.blocked_on = op->run.program->lanes[step.lane].peer;
      situation.blocked_bytes = step.bytes;
    }
  }
  return situation;
}

void Watch::flood(const Situation& own_situation) {
  context_.control->flood(encode(own_situation), topic_of(own_situation));
}

void Watch::on_message(Token token, std::uint32_t origin, std::span<const std::byte> message) {
  auto decoded = decode(message);
  if (auto* situation = std::get_if<Situation>(&decoded))
    return on_situation(origin, std::move(*situation));
  if (const auto* verdict = std::get_if<Verdict>(&decoded)) {
    const auto group = context_.registry.find(verdict->group);
    return group != nullptr ? judge(context_.logger, group->control(token), *verdict)
                            : absent_.keep(*verdict);
  }
  if (const auto* refusal = std::get_if<Refusal>(&decoded)) return on_refusal(origin, *refusal);
  context_.logger.warn(
      fmt::format("rank {} sent a control message of {} bytes that cannot be read; dropped", origin,
                  message.size()));
}

void Watch::ReceivedSituations::advance(std::uint64_t sequence) {
  newest = std::max(newest, sequence);
  if (newest <= CallHistory::kRecords) return;
  const std::uint64_t oldest = newest - CallHistory::kRecords;
  by_call.erase(by_call.begin(), by_call.lower_bound(oldest));
  asked.erase(asked.begin(), asked.lower_bound(oldest));
}

void Watch::on_situation(std::uint32_t origin, Situation&& situation) {
  const auto group = context_.registry.find(situation.group);
  // Every live rank answers a roll call, even about a group that has failed or has ended here.
  if (situation.roll_call != 0) on_roll_call(origin, situation);
  if (situation.answers.number != 0) rolls_.on_answer(origin, situation);
  if (group == nullptr && situation.state == Situation::State::left) {
    absent_.keep(AbsentGroups::Goodbye{situation.group, origin, Clock::now()});
  }
  // The other rank may no longer have the goodbye of this one: it keeps a limited number of
  // goodbyes to groups that it has not made yet.
  if (group == nullptr && situation.is_question && absent_.has_ended(situation.group))
    context_.control->send(origin, encode(goodbye_to(situation.group)));
  if (group == nullptr || !group->spec().rank_of(origin) || !control(*group).health()) return;
  if (situation.state == Situation::State::left) {
    goodbyes_[situation.group].try_emplace(origin, Clock::now());
    return;
  }
  if (!compare(*group, origin, situation)) return;
  ReceivedSituations& received = received_[situation.group];
  const std::uint64_t sequence = situation.sequence;
  received.advance(
      situation.records.empty() ? sequence : std::max(sequence, situation.records.back().sequence));
  if (situation.is_question) {
    received.asked.insert(sequence);
    answer_with_size(*group, sequence);
  }
  // An answer has fewer records than the question that its rank may have asked before.
  if (situation.answers.number == 0)
    received.by_call[sequence].insert_or_assign(origin, std::move(situation));
}

/// In an all_to_all_v, only the ranks themselves know what they expect of each other. If this rank
/// waits in the call that another rank has asked about, it informs the rank for which it waits.
void Watch::answer_with_size(Group& group, std::uint64_t sequence) {
  if (sequence >= history(group).next_sequence()) return;
  const CallRecord& record = history(group).record(sequence);
  if (record.sequence != sequence || !record.uneven ||
      record.collective != collectives::Collective::all_to_all)
    return;
  const Situation own = situation(group, sequence);
  if (own.state != Situation::State::waiting || own.blocked_on >= group.spec().size()) return;
  const std::uint32_t peer = group.spec().world_ranks[own.blocked_on];
  if (peer != context_.rank()) context_.control->send(peer, encode(own));
}

void Watch::on_roll_call(std::uint32_t origin, const Situation& situation) {
  const RollCallId id{.caller = origin, .number = situation.roll_call};
  if (const auto group = context_.registry.find(situation.group)) {
    if (rolls_.on_situation(id, situation, Clock::now()))
      answer(id, this->situation(*group, situation.sequence));
  } else if (absent_.has_ended(situation.group) || is_unused_companion(situation.group)) {
    Situation own_situation;
    own_situation.group = situation.group;
    own_situation.sequence = situation.sequence;
    if (absent_.has_ended(situation.group)) own_situation.state = Situation::State::left;
    answer(id, std::move(own_situation));
  } else {
    absent_.keep(AbsentGroups::Roll{id, situation.group, situation.sequence});
  }
}

void Watch::on_refusal(std::uint32_t origin, const Refusal& refusal) {
  if (refusal.to != context_.rank()) return;
  if (const auto group = context_.registry.find(refusal.header.group)) {
    const auto rank = group->spec().rank_of(origin);
    return rank ? control(*group).messages().on_refusal(*rank, refusal) : void();
  }
  if (refusal.is_answer) return;
  // This rank has left the group, so all its sends have ended, and their bodies will arrive.
  Refusal answer = refusal;
  answer.to = origin;
  answer.is_answer = true;
  context_.control->flood(encode(answer));
}

/// Whether `group` is the uid of a companion of an existing group. Precondition: this rank has not
/// made a group with this uid.
bool Watch::is_unused_companion(std::uint64_t group) const {
  return std::ranges::any_of(context_.registry.groups(), [&](const auto& parent) {
    return parent->spec().companion_uid() == group;
  });
}

void Watch::on_destroyed(Token /*token*/, Group& group) {
  context_.control->flood(encode(goodbye_to(group.spec().uid)));
}

void Watch::answer(RollCallId roll, Situation&& own_situation) {
  own_situation.answers = roll;
  // All ranks answer, so answers are short. The rank that calls the roll has flooded its records.
  if (own_situation.records.size() > 1)
    own_situation.records.erase(own_situation.records.begin(), own_situation.records.end() - 1);
  context_.control->flood(encode(own_situation));
}

void Watch::on_enlisted(Token token, Group& group) {
  const AbsentGroups::Kept kept = absent_.take(group.spec().uid);
  for (const AbsentGroups::Roll& roll : kept.rolls) {
    answer(roll.id, situation(group, roll.sequence));
  }
  for (const AbsentGroups::Goodbye& goodbye : kept.goodbyes) {
    if (group.spec().rank_of(goodbye.rank))
      goodbyes_[group.spec().uid].try_emplace(goodbye.rank, goodbye.at);
  }
  if (kept.verdict) judge(context_.logger, group.control(token), *kept.verdict);
}

void Watch::on_left(Token /*token*/, const Group& group) {
  received_.erase(group.spec().uid);
  goodbyes_.erase(group.spec().uid);
  absent_.note_end(group.spec().uid);
}

/// False if the situation shows that the ranks have made different calls, which fails the group.
bool Watch::compare(Group& group, std::uint32_t origin, const Situation& theirs) {
  auto difference = find_mismatch(history(group), group.spec(), origin, theirs);
  if (!difference) return true;
  control(group).announce(Code::mismatch, origin, *std::move(difference));
  return false;
}

void Watch::on_call(Token /*token*/, Group& group, const CallRecord& record) {
  const auto found = received_.find(group.spec().uid);
  if (found == received_.end()) return;
  ReceivedSituations& received = found->second;
  if (record.sequence > received.newest + CallHistory::kRecords) {
    received_.erase(found);
    return;
  }
  if (record.sequence > received.newest) return;
  for (const auto& [call, by_rank] : received.by_call) {
    for (const auto& [origin, situation] : by_rank) {
      if (!compare(group, origin, situation)) return;
    }
  }
}

Participation Watch::participation_of(Group& group, const RollCall& roll) const {
  Participation participation;
  for (std::uint32_t rank = 0; rank < group.spec().size(); ++rank) {
    const std::uint32_t world = group.spec().world_ranks[rank];
    if (world == context_.rank()) continue;
    if (context_.failures.has_left(token(), world)) {
      participation.left_job.push_back(world);
      continue;
    }
    const bool has_left_group = left_at(group, world) != Clock::time_point::max();
    const auto found = roll.answers.find(world);
    const auto answer = found == roll.answers.end() ? std::nullopt : std::optional(found->second);
    participation.add(world, answer, has_left_group, history(group));
  }
  return participation;
}

std::string Watch::explain(Group& group,
                           const Operation& operation,
                           const Participation& participation) const {
  return fmt::format("{} of {} ({}) has gone on for {} at rank {}",
                     history(group).name_of(operation.sequence), group.spec().label(),
                     describe(history(group).record(operation.sequence)),
                     format_duration(std::chrono::round<std::chrono::milliseconds>(
                         Clock::now() - operation.watched.begun)),
                     group.spec().world_ranks[group.spec().rank]) +
         participation.describe();
}

}  // namespace xylem::runtime
