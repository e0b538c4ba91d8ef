// SPDX-License-Identifier: Apache-2.0
//
// A benchmark session on one rank.
#pragma once

#include "bench/options.h"

namespace xylem::tools {

/// Connects to the other ranks, measures, and reports if this is rank 0. Returns the exit status,
/// which is equal on all ranks that reach the end.
int take_part(const BenchOptions& options);

}  // namespace xylem::tools
