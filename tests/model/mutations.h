// SPDX-License-Identifier: Apache-2.0
//
// Mutations: small errors in a correct plan, at one rank or at both ends of one message.
#pragma once

#include "xylem/collectives/schedule.h"

#include <array>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace xylem::collectives::model {

enum class Mutation {
  drop,           ///< Removes a step. Its successors may or may not inherit its predecessors.
  duplicate,      ///< Repeats a step.
  swap,           ///< Exchanges two steps.
  retarget_peer,  ///< Changes the peer of a step.
  shift_chunk,    ///< Moves one operand of a step, or all of them, by one chunk.
  change_buffer,  ///< Moves an operand to another buffer.
  change_op,  ///< Changes a step's kind, its sources or their order, or how its reduction finishes.
  drop_dependency,   ///< Removes one dependency of a step.
  add_dependency,    ///< Adds a dependency to a step.
  widen_alias,       ///< Uses a chunk in place of another chunk of the same block.
  remove_slot_wait,  ///< A step overwrites memory without waiting for its reads.
  change_channel,    ///< Changes the channel of a step.
};
inline constexpr std::array kMutations = {
    Mutation::drop,          Mutation::duplicate,        Mutation::swap,
    Mutation::retarget_peer, Mutation::shift_chunk,      Mutation::change_buffer,
    Mutation::change_op,     Mutation::drop_dependency,  Mutation::add_dependency,
    Mutation::widen_alias,   Mutation::remove_slot_wait, Mutation::change_channel};
std::string_view name(Mutation mutation);

/// Returns a mutant that differs from the plan, or nothing if the drawn place does not allow this
/// mutation.
std::optional<std::vector<Schedule>> mutate(const std::vector<Schedule>& plan,
                                            Mutation mutation,
                                            std::mt19937_64& random);

}  // namespace xylem::collectives::model
