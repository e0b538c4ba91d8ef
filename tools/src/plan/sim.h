// SPDX-License-Identifier: Apache-2.0
//
// The verb `sim`: predicts a call of several sizes on machines that need not exist.
#pragma once

#include "command_line.h"

namespace xylem::tools {

/// Returns the exit status.
int sim(const SimOptions& options);

}  // namespace xylem::tools
