// SPDX-License-Identifier: Apache-2.0
//
// Participation: which ranks of a group take part in a call, according to their messages.
#pragma once

#include "failure/roll_calls.h"
#include "groups/call_history.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// The other ranks of a group, by their state in one call. All ranks are world ranks.
struct Participation {
  std::vector<std::uint32_t> absent;      ///< Have not made the call.
  std::vector<std::uint32_t> waiting;     ///< Have made the call, and wait.
  std::vector<std::uint32_t> silent;      ///< Have not answered.
  std::vector<std::uint32_t> left_job;    ///< Have left the job.
  std::vector<std::uint32_t> left_group;  ///< Have left the communicator.
  std::string last_calls;                 ///< Text on the last calls of the absent ranks.

  /// Adds a rank that has not left the job. `answer`: what the rank has answered; empty if it has
  /// not. `has_left_group`: the rank has left the communicator. `history` supplies the names of
  /// calls.
  void add(std::uint32_t rank,
           const std::optional<RollCall::Answer>& answer,
           bool has_left_group,
           const CallHistory& history);

  /// The rank to blame, if it is unique. Ranks that have not answered are to blame first. If all
  /// ranks have answered, the ranks that have left are to blame; if no rank has left, those that
  /// have not made the call.
  std::optional<std::uint32_t> culprit() const;
  /// The rank that has left the job or the communicator, if there is exactly one.
  std::optional<std::uint32_t> only_leaver() const;

  /// Texts for error messages. Each begins with "; ", or is empty: "; ranks 3, 4 gave no answer".
  std::string describe() const;
  std::string describe_silent() const;
  std::string describe_leavers() const;
};

}  // namespace xylem::runtime
