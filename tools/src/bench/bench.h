// SPDX-License-Identifier: Apache-2.0
//
// The verb `bench`: measures operations on the ranks of a launcher or, without one, on ranks that
// it starts.
#pragma once

#include "bench/options.h"

#include <string>
#include <vector>

namespace xylem::tools {

/// `command`: this program and its arguments, to be started again as ranks. Returns the exit
/// status.
int bench(const BenchOptions& options, const std::vector<std::string>& command);

}  // namespace xylem::tools
