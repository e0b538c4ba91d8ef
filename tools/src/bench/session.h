// SPDX-License-Identifier: Apache-2.0
//
// A benchmark session on one rank.
#pragma once

#include "bench/options.h"

namespace xylem::tools {

/// Connects to the other ranks and measures. Rank 0 also prints the results. Returns the exit
/// status of this rank. It is equal on all ranks if there is no error.
int take_part(const BenchOptions& options);

}  // namespace xylem::tools
