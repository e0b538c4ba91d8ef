// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calls/plans.h"

namespace xylem::runtime {

struct Context;
struct GroupSpec;

/// What the plans of a group depend on besides the call.
Plans::Site site_of(const Context& context, const GroupSpec& spec);

}  // namespace xylem::runtime
