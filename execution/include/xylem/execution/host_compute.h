// SPDX-License-Identifier: Apache-2.0
//
// Computing by the CPU that drives the engine.
#pragma once

#include "xylem/execution/compute.h"

namespace xylem::execution {

/// Does the work at once. Where it asks for non-temporal stores, this chooses the pieces in which
/// they write.
void compute_on_host(const ComputeWork& work) noexcept;

}  // namespace xylem::execution
