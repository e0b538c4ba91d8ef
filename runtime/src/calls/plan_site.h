// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calls/plans.h"

namespace xylem::runtime {

struct Context;
struct GroupSpec;

/// The data on which the plans of a group depend, apart from the arguments of a call.
Plans::Site site_of(const Context& context, const GroupSpec& spec);

}  // namespace xylem::runtime
