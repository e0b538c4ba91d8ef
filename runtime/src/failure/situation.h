// SPDX-License-Identifier: Apache-2.0
//
// Messages about a group's calls that ranks send over the control plane: the state of a rank in a
// call (Situation), that the group ends with an error (Verdict), and that a message is too long for
// its receive (Refusal).
#pragma once

#include "groups/header_pool.h"
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

/// What the ranks of a communicator must agree on about a collective, unless the communicator has
/// Binding::none.
enum class Agreement : std::uint8_t {
  none,        ///< Nothing: the communicator has Binding::none, or the call moves no data.
  on_host,     ///< All ranks have their buffers in host memory.
  on_devices,  ///< All ranks have their buffers in device memory.
  on_mesh,     ///< The devices carry out the call by themselves.
};

/// One call, as it is reported to other ranks.
struct CallRecord {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;  ///< The fingerprint of this call alone.
  std::uint64_t history = 0;      ///< The hash of all calls up to and including this one.
  collectives::Collective collective = collectives::Collective::barrier;
  DataType type = DataType::uint8;
  RedOp op = RedOp::sum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  bool uneven = false;
  Agreement agreement = Agreement::none;
  std::uint64_t label = 0;  ///< Communicator::labelled(); 0: none.
};
/// "all_reduce of 1024 float32, sum", followed by its agreement, such as ", in device memory", and
/// by its label, if it has one.
std::string describe(const CallRecord& record);

/// One roll call (roll_calls.h).
struct RollCallId {
  std::uint32_t caller = 0;  ///< The world rank of the rank that started the roll call.
  std::uint32_t number = 0;  ///< Number of the roll call at the caller, from 1; 0: none.
  bool operator==(const RollCallId&) const = default;
};

/// What a rank reports about one call of one group.
struct Situation {
  enum class State : std::uint8_t {
    not_called,
    waiting,
    done,
    left  ///< The rank has left the communicator.
  };
  static constexpr std::size_t kMostRecords = 16;

  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  ///< The number of the call.
  State state = State::not_called;
  bool is_question = false;  ///< The reporting rank stalls, and wants others to compare calls.
  /// Number of a roll call, which all ranks answer; 0 if this is no roll call.
  std::uint32_t roll_call = 0;
  RollCallId answers{};  ///< The roll call that this message answers, if any.
  /// If the reporting rank waits: the rank (in the group) whose message it waits for; ~0: none.
  std::uint32_t blocked_on = ~0U;
  /// How many bytes the reporting rank expects from the rank `blocked_on`. Used for calls in which
  /// not all ranks know all sizes.
  std::uint64_t blocked_bytes = 0;
  std::vector<CallRecord> records;  ///< Calls around `sequence`, newest last.
};

/// Announces that a group ends with an error.
struct Verdict {
  std::uint64_t group = 0;
  Code code = Code::internal;
  std::optional<std::uint32_t> culprit;
  std::string message;
};

/// Informs the sender of a message that the receive is too short for it. If the body has been sent
/// already, the sender sends an answer, and the receiver drops the body
/// (point_to_point_refusal.cc).
struct Refusal {
  std::uint32_t to = 0;    ///< World rank of the addressee. All other ranks ignore the refusal.
  bool is_answer = false;  ///< The sender's answer: the body will arrive.
  MessageHeader header;    ///< The header of the message.
  std::uint64_t room = 0;  ///< How many elements the receive has room for.
};

/// The topics under which ranks flood messages that serve the same purpose (ControlPlane::flood).
/// Roll calls have one of their own, since all ranks answer them.
std::uint64_t topic_of(const Situation& situation) noexcept;
std::uint64_t topic_of(const Verdict& verdict) noexcept;

std::vector<std::byte> encode(const Situation& situation);
std::vector<std::byte> encode(const Verdict& verdict);
std::vector<std::byte> encode(const Refusal& refusal);
/// Decodes a message. Returns std::monostate if the message is damaged.
std::variant<std::monostate, Situation, Verdict, Refusal> decode(
    std::span<const std::byte> message);

}  // namespace xylem::runtime
