// SPDX-License-Identifier: Apache-2.0
//
// The verb `run`: starts ranks of any program on this host.
#pragma once

#include "command_line.h"

namespace xylem::tools {

/// Returns the exit status.
int run(const RunOptions& options);

}  // namespace xylem::tools
