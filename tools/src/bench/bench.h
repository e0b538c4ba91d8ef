// SPDX-License-Identifier: Apache-2.0
//
// The verb `bench`: measures operations on the ranks of a launcher or, without a launcher, on ranks
// that it starts itself.
#pragma once

#include "bench/options.h"

#include <string>
#include <vector>

namespace xylem::tools {

/// `command` is this program with its arguments; it is used to start the ranks. Returns the exit
/// status.
int bench(const BenchOptions& options, const std::vector<std::string>& command);

}  // namespace xylem::tools
