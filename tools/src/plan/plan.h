// SPDX-License-Identifier: Apache-2.0
//
// The verb `plan`: shows what Xylem would do for a call, why, and whether the plan is proven right.
#pragma once

#include "command_line.h"

namespace xylem::tools {

/// Returns the exit status.
int plan(const PlanOptions& options);

}  // namespace xylem::tools
