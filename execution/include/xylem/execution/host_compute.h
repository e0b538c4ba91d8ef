// SPDX-License-Identifier: Apache-2.0
//
// Computing by the CPU that drives the engine.
#pragma once

#include "xylem/execution/compute.h"

namespace xylem::execution {

/// Does the work at once. If the work requests non-temporal stores, the result is written in
/// pieces, whose size is chosen here.
void compute_on_host(const ComputeWork& work) noexcept;

}  // namespace xylem::execution
