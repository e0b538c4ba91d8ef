// SPDX-License-Identifier: Apache-2.0
//
// Participation: which ranks of a group take part in a call, as far as is known.
#pragma once

#include "failure/roll_calls.h"
#include "groups/call_history.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xylem::runtime {

/// The other ranks of a group, by what they do about one call. All ranks are world ranks.
struct Participation {
  std::vector<std::uint32_t> absent;   ///< They have not called it.
  std::vector<std::uint32_t> waiting;  ///< They have called it, and wait.
  std::vector<std::uint32_t> silent;   ///< They gave no answer.
  std::vector<std::uint32_t> left;     ///< They have left the job.
  std::vector<std::uint32_t> gone;     ///< They have let go of the communicator.
  std::string last_calls;              ///< Text on the last calls of the absent ranks.

  /// Adds a rank that has not left the job, by its answer if it gave one. `has_left`: it has let go
  /// of the communicator. `history` names calls.
  void add(std::uint32_t rank,
           const std::optional<RollCall::Answer>& answer,
           bool has_left,
           const CallHistory& history);

  /// The rank to blame, if there is only one. A rank that gives no answer comes first; if all
  /// answer, one that has left; otherwise one that did not call.
  std::optional<std::uint32_t> culprit() const;
  /// The rank that has left, if there is only one.
  std::optional<std::uint32_t> only_leaver() const;

  /// Texts for messages. Each begins with "; ", or is empty: "; ranks 3, 4 gave no answer".
  std::string describe() const;
  std::string describe_silent() const;
  std::string describe_leavers() const;
};

}  // namespace xylem::runtime
