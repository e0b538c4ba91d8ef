// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other of a group's calls, over the control plane: where they are
// (Situation), and that the group ends (Verdict).
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"
#include "xylem/runtime/types.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace xylem::runtime {

/// What a verdict says of one call.
struct CallRecord {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;  ///< Of this call alone.
  std::uint64_t history = 0;      ///< Of all calls up to and with this one.
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  RedOp op = RedOp::sum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  bool uneven = false;
};
/// "all_reduce of 1024 float32, sum"
std::string describe(const CallRecord& record);

/// One roll call (roll_calls.h).
struct RollCallId {
  std::uint32_t caller = 0;  ///< World rank.
  std::uint32_t number = 0;  ///< Of the caller's roll calls; 0: none.
  bool operator==(const RollCallId&) const = default;
};

/// What a rank says of one call of one group.
struct Situation {
  enum class State : std::uint8_t {
    not_called,
    waiting,
    done,
    gone  ///< It has let go of the communicator.
  };
  static constexpr std::size_t kMostRecords = 16;

  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  ///< The call in question.
  State state = State::not_called;
  bool is_question = false;         ///< To be answered by who has something new to say.
  std::uint32_t roll_call = 0;      ///< A question that all answer; 0: it is none.
  RollCallId answers{};             ///< The roll call that this answers, if any.
  std::uint32_t blocked_on = ~0U;   ///< waiting: rank in the group; ~0: none.
  std::uint64_t blocked_bytes = 0;  ///< Bytes expected from it, for calls whose sizes are local.
  std::vector<CallRecord> records;  ///< This rank's last calls, newest last.
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
/// Nothing where the message is damaged.
std::variant<std::monostate, Situation, Verdict> decode(std::span<const std::byte> message);

}  // namespace xylem::runtime
