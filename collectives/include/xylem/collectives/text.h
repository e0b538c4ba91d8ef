// SPDX-License-Identifier: Apache-2.0
//
// Schedules as text: for people, golden files and plans that users write. Parsing a printed
// schedule returns an equal one: parse_schedule(print(s)) == s.
//
//   schedule all_reduce ring rank 0 of 2 root 0 blocks 2 channels 1
//   scratch 0 1
//   0: send ch0 peer 1 input[0]
//   1: recv ch0 peer 1 scratch[0]
//   2: reduce output[1] = input[1] + scratch[1] finish  after 1
#pragma once

#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"

#include <string>
#include <string_view>
#include <vector>

namespace xylem::collectives {

/// A run of chunks is "input[2..4]", a chunk of another rank "input[2]@3", and a wait ends with
/// "value 2". The round trip is exact for schedules in normal form, as the builder and the parser
/// produce them: operands and predecessors are stored in the order of their steps, and a target
/// before its sources.
std::string print(const Schedule& schedule);
/// Fails with `bad_schedule`, naming line, value and rule. The result is well-formed but not
/// proven: call verify().
Result<Schedule> parse_schedule(std::string_view text);
/// Reads several plans. The text holds the schedules of all ranks of each plan, one after another
/// and in any order, and has at most one plan for each collective, number of ranks and root. In the
/// result, `plans[p][r]` is rank r's schedule of plan p. Fails with `bad_schedule`, also if a rank
/// has no schedule or has two.
Result<std::vector<std::vector<Schedule>>> parse_plans(std::string_view text);

}  // namespace xylem::collectives
