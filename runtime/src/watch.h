// SPDX-License-Identifier: Apache-2.0
//
// Watch: finds out why an operation does not go on, and says it on all ranks.
//
// The oldest collective of a communicator, if it stalls for 200 ms, publishes its situation on the
// control plane, as a question: the call, those around it, and what it waits for. Every rank
// compares with its own calls and answers with its own situation, unless it has said the same
// before. A difference is a `mismatch` verdict naming both sides. Before the deadline of any
// operation a roll is called (roll_calls.h), which every rank answers with its situation: that says
// who has not called, who waits, and who does not answer.
#pragma once

#include "context.h"
#include "group.h"
#include "operation.h"
#include "roll_calls.h"
#include "situation.h"
#include "xylem/base/clock.h"
#include "xylem/base/status.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace xylem::runtime {

/// Token holder only.
class Watch final : public GroupObserver {
 public:
  static constexpr std::chrono::milliseconds kStall{200};  ///< Until a situation is published.
  /// So long before its limit, and not before half of it, an operation has the roll called.
  static constexpr std::chrono::milliseconds kRollCall = RollCall::kAnswer;
  static constexpr std::chrono::milliseconds kLetGo{
      1000};  ///< Until a partner that has left is not waited for any more.
  static constexpr std::chrono::milliseconds kQuarantine{
      1700};  ///< Until it reports although messages are under way.

  explicit Watch(Context& context);

  /// Looks at every operation under way; about every 50 ms while there are any.
  void tick(Clock::time_point now);
  /// A message from the control plane. Damaged ones are dropped with a warning.
  void on_message(std::uint32_t origin, std::span<const std::byte> message);
  /// A call has been numbered: others may have published theirs already.
  void on_call(Group& group, const CallRecord& record) override;
  /// A group is there: it may have been spoken of before.
  void on_enlisted(Group& group) override;
  /// A group is here no more.
  void on_left(const Group& group) override;

 private:
  void look(Operation& operation, Clock::time_point now);
  void look_at_failing(Operation& operation, Clock::time_point now);
  void find_oldest();
  bool is_oldest(const Operation& operation) const;
  void look_at_message(Group& group, const Operation& operation, Clock::time_point now);
  void look_for_leavers(Group& group, const Operation& operation, Clock::time_point now);
  static std::uint64_t call_of(const Group& group, const Operation& operation);
  void come_to_limit(Group& group,
                     Operation& operation,
                     std::chrono::nanoseconds limit,
                     Clock::time_point now);
  bool is_over(const Group& group, const RollCall& roll) const;
  void time_out(Group& group,
                const Operation& operation,
                const RollCall& roll,
                std::chrono::nanoseconds longest);
  void keep(const Verdict& verdict);
  void publish(Group& group, Situation&& said);
  Situation situation(Group& group, std::uint64_t sequence) const;
  void on_situation(std::uint32_t origin, Situation&& situation);
  void on_roll_call(std::uint32_t origin, const Situation& situation);
  void answer(RollCallId roll, Situation&& said);
  bool compare(Group& group, std::uint32_t origin, const Situation& situation);
  bool compare_history(Group& group, std::uint32_t origin, const CallRecord& record);
  /// Who takes part in a call, as far as is known: world ranks of the others.
  struct Attendance {
    std::vector<std::uint32_t> absent, waiting, silent, left;
    std::string last_calls;  ///< Of those absent; text.

    /// The one rank to blame, if it is one: it gives no answer, or, where all do, has left the job
    /// or else did not call.
    std::optional<std::uint32_t> culprit() const;
  };
  /// By what has been said so far, or by the answers to a roll.
  Attendance attendance_of(const Group& group, std::uint64_t sequence) const;
  Attendance attendance_of(const Group& group, const RollCall& roll) const;
  template <typename AnswerOf>
  Attendance attendance_by(const Group& group, AnswerOf&& answer_of) const;
  std::string explain(Group& group, const Operation& operation) const;
  static std::string explain(Group& group,
                             const Operation& operation,
                             const Attendance& attendance);

  /// What was said of the calls of one group. Calls too old to be compared with are forgotten.
  struct Heard {
    std::map<std::uint64_t, std::map<std::uint32_t, Situation>> by_call;  ///< Then by world rank.
    std::map<std::uint64_t, Situation::State> published;                  ///< What this rank said.
    std::uint64_t newest = 0;  ///< Call of which anything is known.
  };
  /// A roll of a group that is not here.
  struct EarlyRoll {
    RollCallId id;
    std::uint64_t group = 0, sequence = 0;
  };
  static constexpr std::size_t kEarly = 64, kGone = 256;

  Context& context_;
  RollCalls rolls_;
  std::map<std::uint64_t, Heard> heard_;
  std::unordered_map<const Group*, std::uint64_t> oldest_;  ///< Calls under way; of this tick.
  // On groups that are not here, or not yet.
  std::deque<Verdict> early_verdicts_;
  std::deque<EarlyRoll> early_rolls_;
  std::deque<std::uint64_t> gone_;  ///< Groups that were here.
};

}  // namespace xylem::runtime
