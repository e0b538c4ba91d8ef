// SPDX-License-Identifier: Apache-2.0
//
// The verb `plan`: what Xylem would do for a call, why, and whether that is right.
#pragma once

#include "command_line.h"

namespace xylem::tools {

/// Returns the exit status.
int plan(const PlanOptions& options);

}  // namespace xylem::tools
