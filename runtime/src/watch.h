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

#include "operation.h"
#include "roll_calls.h"
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

class Group;
class Job;
struct CallRecord;

/// What a rank says of one call of one group.
struct Situation {
  enum class State : std::uint8_t { not_called, waiting, done };

  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  ///< The call in question.
  State state = State::not_called;
  bool is_question = false;           ///< To be answered by who has something new to say.
  std::uint32_t roll_call = 0;        ///< A question to be answered in any case; 0: it is none.
  std::vector<RollCall::Id> answers;  ///< The roll calls that this answers.
  std::uint32_t blocked_on = ~0U;     ///< waiting: rank in the group; ~0: none.
  std::uint64_t blocked_bytes = 0;    ///< Bytes expected from it, for calls whose sizes are local.
  std::vector<CallRecord> records;    ///< This rank's last calls, newest last.
};

/// Announces that a group ends with an error.
struct Verdict {
  std::uint64_t group = 0;
  Code code = Code::internal;
  std::optional<std::uint32_t> culprit;
  std::string message;
};

std::vector<std::byte> encode(const Situation& situation);
std::vector<std::byte> encode(const Verdict& verdict);

/// Token holder only.
class Watch {
 public:
  static constexpr std::chrono::milliseconds kStall{200};  ///< Until a situation is published.
  /// The roll is called this long before the limit. One rank that has not answered by then gives
  /// no answer; several may just be slow, as on a host that is overloaded, and get more time.
  static constexpr std::chrono::milliseconds kAnswer{300}, kSlowAnswers{1500};
  static constexpr std::chrono::milliseconds kLetGo{
      1000};  ///< Until a partner that has left is not waited for any more.
  static constexpr std::chrono::milliseconds kQuarantine{
      1700};  ///< Until it reports although messages are under way.

  explicit Watch(Job& job);

  /// Looks at every operation under way; about every 50 ms while there are any.
  void tick(Clock::time_point now);
  /// A message from the control plane. Damaged ones are dropped with a warning.
  void on_message(std::uint32_t origin, std::span<const std::byte> message);
  /// After all messages that have come: one answer to all roll calls on the same call.
  void answer_roll_calls();
  /// A call has been numbered: others may have published theirs already.
  void on_call(Group& group, const CallRecord& record);
  /// A group is there: it may have been spoken of before.
  void on_enlisted(Group& group);
  void forget(std::uint64_t group) { heard_.erase(group); }

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
  bool is_answered(const Group& group, const RollCall& roll, Clock::duration waited) const;
  void time_out(Group& group,
                const Operation& operation,
                const RollCall& roll,
                std::chrono::nanoseconds longest);
  void keep(const Verdict& verdict);
  void publish(Group& group, Situation&& said);
  Situation situation(Group& group, std::uint64_t sequence) const;
  void on_situation(std::uint32_t origin, Situation&& situation);
  void on_roll_call(std::uint32_t origin, const Situation& situation);
  bool compare(Group& group, std::uint32_t origin, const Situation& situation);
  bool compare_history(Group& group, std::uint32_t origin, const CallRecord& record);
  /// Who takes part in a call, as far as is known: world ranks of the others.
  struct Attendance {
    std::vector<std::uint32_t> absent, waiting, silent;
    std::string last_calls;  ///< Of those absent; text.

    /// The one rank to blame, if it is one: it gives no answer, or, where all do, did not call.
    std::optional<std::uint32_t> culprit() const;
  };
  /// With a roll call only what has been said since counts.
  Attendance attendance_of(Group& group, std::uint64_t sequence, const RollCall* roll) const;
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
  /// A call, and the roll calls on it that this rank has still to answer.
  struct Owed {
    std::uint64_t group = 0, sequence = 0;
    std::vector<RollCall::Id> rolls;
  };
  static constexpr std::size_t kEarlyVerdicts = 64;

  Job& job_;
  RollCalls rolls_;
  std::vector<Owed> owed_;
  std::map<std::uint64_t, Heard> heard_;
  std::unordered_map<const Group*, std::uint64_t> oldest_;  ///< Calls under way; of this tick.
  std::deque<Verdict> early_verdicts_;  ///< On groups that are not here, or not yet.
};

}  // namespace xylem::runtime
