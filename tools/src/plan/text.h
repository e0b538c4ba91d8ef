// SPDX-License-Identifier: Apache-2.0
//
// Texts of the verbs `plan` and `sim`.
#pragma once

#include "bench/operation.h"
#include "plan/job.h"
#include "xylem/base/status.h"
#include "xylem/collectives/schedule.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace xylem::tools {

/// Calls are planned for elements of this many bytes.
inline constexpr std::uint32_t kPlannedElement = 4;

/// Prints why the verb cannot do what it is asked for. Returns the exit status.
int refuse(std::string_view verb, const Status& status);
/// "1.28 ms", "53 us", "2.4 s".
std::string time_text(double us);
/// "1 rank", "8 ranks".
std::string counted(std::uint64_t count, std::string_view thing);
/// The operation of the bench with the same name.
Operation operation_of(collectives::Collective collective);
/// Prints what the plan assumes about the hosts and the network.
void print_job(const PlannedJob& job);

}  // namespace xylem::tools
