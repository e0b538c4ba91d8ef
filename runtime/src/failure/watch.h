// SPDX-License-Identifier: Apache-2.0
//
// Watch: finds out why an operation makes no progress, and reports the reason to all ranks.
//
// If the oldest collective of a communicator stalls for 200 ms, this rank floods its situation on
// the control plane: the call, the calls around it, and the rank for which it waits. Every other
// rank compares this situation with its own calls, now or when it makes them. A difference leads to
// a `mismatch` verdict that names both sides; nobody answers otherwise, or asks again. Shortly
// before the stall is reported, and before the time limit of an operation, this rank starts a roll
// call (roll_calls.h), and every rank answers with its situation. The answers show which ranks have
// not made the call, which ranks wait in it, and which ranks do not answer.
#pragma once

#include "calls/operation.h"
#include "context.h"
#include "failure/absent_groups.h"
#include "failure/participation.h"
#include "failure/roll_calls.h"
#include "failure/situation.h"
#include "groups/group.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xylem::runtime {

/// Watches the operations of a job.
class Watch final : public GroupObserver, public WorkSource {
 public:
  /// After a stall of this length, this rank floods its situation.
  static constexpr std::chrono::milliseconds kStall{200};
  /// A roll call starts this long before a stall is reported, and before an operation's time limit,
  /// but not before half of these times.
  static constexpr std::chrono::milliseconds kRollCall = RollCall::kAnswer;
  static constexpr std::chrono::milliseconds kPartnerLeftLimit{
      1000};  ///< How long an operation waits for a partner that has left.
  static constexpr std::chrono::milliseconds kQuarantine{
      1700};  ///< After this time a failed operation ends, even if messages are still under way.

  explicit Watch(Context& context);

  unsigned turn(Token /*token*/) override { return 0; }
  /// Checks every operation under way.
  void tick(Token token, Clock::time_point now) override;
  /// Handles a message from the control plane. Damaged messages are dropped with a warning.
  void on_message(Token token, std::uint32_t origin, std::span<const std::byte> message);
  /// A call has been numbered. Other ranks may have published this call already.
  void on_call(Token token, Group& group, const CallRecord& record) override;
  /// A group has been made. Other ranks may have sent messages about it already.
  void on_enlisted(Token token, Group& group) override;
  /// This rank has left a group.
  void on_left(Token token, const Group& group) override;
  /// Informs the other members that this rank has left the group.
  void on_destroyed(Token token, Group& group) override;

 private:
  // Only the token holder uses this object.
  Token token() const noexcept { return context_.progress.assert_held(); }
  Engine& engine() const noexcept { return context_.scheduler.engine(token()); }
  GroupControl& control(Group& group) const noexcept { return group.control(token()); }
  CallHistory& history(Group& group) const noexcept { return control(group).history(); }

  void check(Operation& operation, Clock::time_point now);
  void ask(Group& group, std::uint64_t sequence);
  void warn_of_stall(Group& group,
                     Operation& operation,
                     std::chrono::nanoseconds stalled,
                     Clock::time_point now);
  void look_at_failing(Operation& operation, Clock::time_point now);
  void find_oldest();
  bool is_oldest(const Operation& operation) const;
  void look_at_message(Group& group, const Operation& operation, Clock::time_point now);
  void look_for_leavers(Group& group, const Operation& operation, Clock::time_point now);
  std::uint64_t call_of(Group& group, const Operation& operation) const;
  void come_to_limit(Group& group,
                     Operation& operation,
                     std::chrono::nanoseconds limit,
                     Clock::time_point now);
  const RollCall* call_roll(Group& group,
                            const Operation& operation,
                            RollCallId& id,
                            std::chrono::nanoseconds passed,
                            std::chrono::nanoseconds limit,
                            Clock::time_point now);
  bool is_over(Group& group, const RollCall& roll) const;
  void time_out(Group& group,
                const Operation& operation,
                const RollCall& roll,
                std::chrono::nanoseconds longest);
  /// When the rank left the job or the group; far in the future if it has not.
  Clock::time_point left_at(Group& group, std::uint32_t world_rank) const;
  /// What the rank has left, as text for error messages: "the job" or "the communicator".
  std::string_view left_by(std::uint32_t world_rank) const;
  bool is_unused_companion(std::uint64_t group) const;
  void flood(const Situation& own_situation);
  void answer_with_size(Group& group, std::uint64_t sequence);
  Situation situation(Group& group, std::uint64_t sequence) const;
  void on_situation(std::uint32_t origin, Situation&& situation);
  void on_roll_call(std::uint32_t origin, const Situation& situation);
  void on_refusal(std::uint32_t origin, const Refusal& refusal);
  void answer(RollCallId roll, Situation&& own_situation);
  bool compare(Group& group, std::uint32_t origin, const Situation& situation);
  /// Which ranks take part in a call, according to the answers to a roll call.
  Participation participation_of(Group& group, const RollCall& roll) const;
  std::string explain(Group& group,
                      const Operation& operation,
                      const Participation& participation) const;

  /// What other ranks have flooded about the calls of one group. Calls too old to be compared are
  /// removed.
  struct ReceivedSituations {
    /// Removes what is too old beside call `sequence`.
    void advance(std::uint64_t sequence);

    /// The situations by call, and then by world rank.
    std::map<std::uint64_t, std::map<std::uint32_t, Situation>> by_call;
    std::set<std::uint64_t> asked;  ///< The calls about which some rank has asked.
    std::uint64_t newest = 0;       ///< The newest call in any of these situations.
  };

  Context& context_;
  RollCalls rolls_;
  std::map<std::uint64_t, ReceivedSituations> received_;
  /// For each group, its oldest call under way at this tick.
  std::unordered_map<const OperationOwner*, std::uint64_t> oldest_;
  /// For each group, the members that have left it (by world rank), and the times at which they
  /// left.
  std::map<std::uint64_t, std::map<std::uint32_t, Clock::time_point>> goodbyes_;
  AbsentGroups absent_;
};

}  // namespace xylem::runtime
