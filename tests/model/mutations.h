// SPDX-License-Identifier: Apache-2.0
//
// Mutations: small wrongs done to a right plan, at one rank or at both ends of one message.
#pragma once

#include "xylem/collectives/schedule.h"

#include <array>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace xylem::collectives::model {

enum class Mutation {
  drop,              ///< A step is missing; its successors follow its predecessors, or do not.
  duplicate,         ///< A step is there twice.
  swap,              ///< Two steps stand in each other's place.
  retarget_peer,     ///< A step talks to another rank.
  shift_chunk,       ///< An operand, or all of a step, lies one chunk off.
  change_buffer,     ///< An operand lies in another buffer.
  change_op,         ///< A step is of another kind, or reduces other sources, in another order, or
                     ///< finishes wrongly.
  drop_dependency,   ///< A step comes after one step less.
  add_dependency,    ///< A step comes after one step more.
  widen_alias,       ///< Two chunks of the same block are taken for one.
  remove_slot_wait,  ///< A step does not wait until what it overwrites has been read.
  change_channel,    ///< A step uses another channel.
};
inline constexpr std::array kMutations = {
    Mutation::drop,          Mutation::duplicate,        Mutation::swap,
    Mutation::retarget_peer, Mutation::shift_chunk,      Mutation::change_buffer,
    Mutation::change_op,     Mutation::drop_dependency,  Mutation::add_dependency,
    Mutation::widen_alias,   Mutation::remove_slot_wait, Mutation::change_channel};
std::string_view name(Mutation mutation);

/// A mutant of the plan, different from it; none if the draw found no place for this mutation.
std::optional<std::vector<Schedule>> mutate(const std::vector<Schedule>& plan,
                                            Mutation mutation,
                                            std::mt19937_64& random);

}  // namespace xylem::collectives::model
