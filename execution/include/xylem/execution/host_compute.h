// SPDX-License-Identifier: Apache-2.0
//
// Copies, reductions and scalings by the CPU, on the thread that drives the engine.
#pragma once

#include "xylem/execution/compute.h"

namespace xylem::execution {

/// Does the work, and returns when it has completed. Results for which the work requests
/// non-temporal stores are written piece by piece.
void compute_on_host(const ComputeWork& work) noexcept;

}  // namespace xylem::execution
